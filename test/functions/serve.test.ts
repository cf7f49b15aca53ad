import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createSamplingParams } from "../../engine/index.ts";
import { ConfigError, serve } from "../../functions/serve.ts";
import type { RunningService } from "../../functions/serve.ts";
import { testDataHome } from "../support/service/test-data-home.ts";

const picture = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url), "base64");
const settings = { HOST: "127.0.0.1", PORT: 0, BATCH_STORE: testDataHome } as const;

const messages = [
  {
    role: "user",
    content: [
      { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
      { type: "text", text: "Describe the picture." },
    ],
  },
];

async function post(port: number, body: object, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

describe("a service inside this program", () => {
  let service: RunningService;
  let log = "";
  const numListeners = [process.listenerCount("SIGTERM"), process.listenerCount("SIGINT")];

  beforeAll(async () => {
    service = await serve({ ...settings, API_KEY: "secret", MAX_NUM_SEQS: 4 }, { log: (line) => (log += line) });
    await service.ready;
  });

  afterAll(() => service.close());

  test("answers about a picture with the given settings", async () => {
    expect((await post(service.port, { messages })).status).toBe(401);
    const response = await post(service.port, { messages }, { authorization: "Bearer secret" });
    expect(await response.json()).toMatchObject({
      choices: [{ message: { content: expect.stringContaining("red circle") } }],
    });
  });

  test("exposes the engine that serves the requests", async () => {
    const engine = await service.ready;
    expect(engine.modelInfo?.maxNumSequences).toBe(4);
    let text = "";
    const outputs = engine.generate({
      requestId: "beside HTTP",
      prompt: { kind: "text", text: "a red", addSpecialTokens: true },
      samplingParams: createSamplingParams({ maxTokens: 4, temperature: 0 }),
    });
    for await (const output of outputs) text += output.text;
    expect(text).not.toBe("");
  });

  test("logs lines of JSON", () => {
    const entries = log.trimEnd().split("\n");
    expect(entries.map((line) => (JSON.parse(line) as { message: string }).message)).toEqual(
      expect.arrayContaining(["Listening.", "Ready."]),
    );
  });

  test("does not handle the process's signals", () => {
    expect([process.listenerCount("SIGTERM"), process.listenerCount("SIGINT")]).toEqual(numListeners);
  });
});

test("closing waits for an answer in progress and rejects the next request", async () => {
  const service = await serve(settings);
  await service.ready;
  const response = await post(service.port, { messages, stream: true });
  const [text, isClean] = await Promise.all([response.text(), service.close()]);
  expect(text).toContain("data: [DONE]");
  expect(isClean).toBe(true);
  expect(await service.close()).toBe(true);
  await expect(post(service.port, { messages })).rejects.toThrow("fetch failed");
});

test("a service can be closed while its model loads", async () => {
  const service = await serve(settings);
  expect(await service.close()).toBe(true);
  await expect(service.ready).rejects.toMatchObject({ code: "closed" });
});

test("a missing model rejects `ready`, and requests are rejected until the service is closed", async () => {
  await using service = await serve({ ...settings, MODEL: "/nowhere" });
  await expect(service.ready).rejects.toThrow("There is no folder /nowhere.");
  expect((await post(service.port, { messages })).status).toBe(500);
});

test("a port in use rejects", async () => {
  await using service = await serve(settings);
  await expect(serve({ ...settings, PORT: service.port })).rejects.toThrow("EADDRINUSE");
});

test.for([
  [{ MAX_NUM_SEQS: "many" }, /^MAX_NUM_SEQS is "many": /],
  [{ max_num_seqs: 4 }, "max_num_seqs is not a setting; did you mean MAX_NUM_SEQS?"],
  [{ MAX_NUM_SEQ: 4 }, "MAX_NUM_SEQ is not a setting; did you mean MAX_NUM_SEQS?"],
  [{ FROBNICATE: 4 }, "FROBNICATE is not a setting; fovea --help lists them."],
] as const)("%o is an invalid setting", async ([wrong, message]) => {
  const starting = serve({ ...settings, ...(wrong as object) });
  await expect(starting).rejects.toThrow(ConfigError);
  await expect(starting).rejects.toThrow(message);
});

test("every invalid setting is listed, unknown names too", async () => {
  const wrong = { FROBNICATE: 4, MAX_NUM_SEQS: "many", DTYPE: "int5", LIMIT_MM_PER_PROMPT: { image: "two" } };
  const error = await serve({ ...settings, ...wrong }).catch((reason: unknown) => reason);
  expect((error as ConfigError).problems).toEqual([
    "FROBNICATE is not a setting; fovea --help lists them.",
    expect.stringMatching(/^DTYPE is "int5": /),
    expect.stringMatching(/^MAX_NUM_SEQS is "many": /),
    expect.stringMatching(/^LIMIT_MM_PER_PROMPT is .*image.*two/),
  ]);
});

test("settings that take JSON take objects", async () => {
  await using service = await serve({ ...settings, LIMIT_MM_PER_PROMPT: { image: 1 } });
  await service.ready;
  const [message] = messages;
  const twice = [{ role: "user", content: [message!.content[0], ...message!.content] }];
  const response = await post(service.port, { messages: twice });
  expect(response.status).toBe(400);
  expect(await response.text()).toContain("LIMIT_MM_PER_PROMPT");
});

test("the environment is not read", async () => {
  process.env.MODEL = "/nowhere";
  try {
    await using service = await serve(settings);
    expect((await service.ready).state).toBe("ready");
  } finally {
    delete process.env.MODEL;
  }
});
