/**
 * SageMaker as the caller of the container, for real-time, streamed and asynchronous inference and for batch
 * transforms. The contract, read on 2026-11-22:
 * https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
 * https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-batch-code.html
 * https://docs.aws.amazon.com/sagemaker/latest/dg/multi-container-troubleshooting.html (SAGEMAKER_BIND_TO_PORT)
 */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { defaultVideoLimits } from "../../../../engine/contract/default-limits.ts";
import { freePort } from "../../../support/servers/free-port.ts";
import { startContainer } from "../../../support/service/container-process.ts";
import { createTestApp } from "../../../support/service/test-app.ts";

const picture = await readFile(
  new URL("../../../../models/fovea-shapes/examples/scene.png", import.meta.url),
  "base64",
);
const chat = {
  messages: [
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
        { type: "text", text: "Describe the picture." },
      ],
    },
  ],
  temperature: 0,
  max_tokens: 12,
};

/** Without other headers, because SageMaker removes those that it does not know. */
async function invoke(port: number, body: string): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}/invocations`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-amzn-sagemaker-custom-attributes": "trace=1" },
    body,
  });
}

test("the image serves on SAGEMAKER_BIND_TO_PORT, answers whole and streamed, and ends by SIGTERM", async () => {
  const port = await freePort();
  await using container = await startContainer({ SAGEMAKER_BIND_TO_PORT: String(port) });
  expect((await fetch(`http://127.0.0.1:${port}/ping`)).status).toBe(200);

  // Asynchronous inference sends the object at InputLocation like this, and stores the answer at OutputLocation.
  const stored = Buffer.from(await (await invoke(port, JSON.stringify(chat))).arrayBuffer());
  const answer = JSON.parse(stored.toString()) as { choices: { message: { content: string } }[] };
  expect(answer.choices[0]!.message.content).not.toBe("");

  // The stream of InvokeEndpointWithResponseStream has the bytes of the container's response.
  const streamed = await invoke(port, JSON.stringify({ ...chat, stream: true }));
  expect(streamed.headers.get("content-type")).toMatch(/^text\/event-stream/);
  const chunks = [...(await streamed.text()).matchAll(/^data: (\{.*\})$/gm)].map(
    ([, json]) => JSON.parse(json!) as { choices: { delta: { content?: string } }[] },
  );
  const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
  expect(text).toBe(answer.choices[0]!.message.content);

  // An object that is no body: the status is an error, so the platform writes it to the failure location.
  const refused = await invoke(port, '{"inputs": "a"}');
  expect([refused.status, await refused.json()]).toEqual([
    400,
    { error: expect.objectContaining({ type: "invalid_request_error" }) },
  ]);
  expect(await container.stop()).toBe(0);
});

test("/ping says whether the container serves, and asks for a restart only if one helps", async () => {
  const { app, engine, service } = createTestApp();
  const ping = async () => (await app.request("/ping")).status;
  expect(await ping()).toBe(200);
  engine.state = "loading";
  expect(await ping()).toBe(503);
  engine.state = "failed";
  expect(await ping()).toBe(500);
  engine.state = "ready";
  await service.drain(0);
  expect(await ping()).toBe(503);
});

test.for<[number, number, object]>([
  [8, 32, { MaxConcurrentTransforms: 8, MaxPayloadInMB: 12 }],
  [8, 4, { MaxConcurrentTransforms: 8, MaxPayloadInMB: 4 }],
  [256, 32, { MaxConcurrentTransforms: 100, MaxPayloadInMB: 1 }],
])(
  "a batch transform with %i sequences and bodies of %i MiB sends lines alone, 100 MiB at once",
  async ([maxNumSequences, mebibytes, expected]) => {
    const engine = {
      dataParallelSize: 1,
      maxNumSequences,
      maxNumWaiting: 256,
      pipelinePath: [],
      videoLimits: defaultVideoLimits,
    };
    const { app } = createTestApp({ config: { engine, maxBodyBytes: mebibytes * 1024 ** 2 } });
    const response = await app.request("/execution-parameters");
    expect(await response.json()).toEqual({ BatchStrategy: "SINGLE_RECORD", ...expected });
  },
);
