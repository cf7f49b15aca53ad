/**
 * KServe as the caller of the container: version 2 of the Open Inference Protocol, read on 2026-11-22:
 * https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
 */
import { describe, expect, test } from "vitest";

import { chatBody, createTestApp } from "../../../support/service/test-app.ts";

const tensor = (name: string, data: readonly string[]) => ({ name, shape: [data.length], datatype: "BYTES", data });

describe("inference", () => {
  test("prompts become texts, with the parameters of the request", async () => {
    const { post, engine } = createTestApp({ script: (prompt) => [`${prompt}!`] });
    const response = await post("/v2/models/tiny/infer", {
      id: "7",
      inputs: [tensor("text_input", ["A", "B"])],
      parameters: { max_tokens: 3 },
    });
    expect(await response.json()).toEqual({
      model_name: "tiny",
      model_version: "1",
      id: "7",
      outputs: [{ name: "text_output", shape: [2], datatype: "BYTES", data: ["A!", "B!"] }],
    });
    expect(engine.requests.map(({ samplingParams }) => samplingParams?.maxTokens)).toEqual([3, 3]);
  });

  test("bodies become answers, with pictures like any body", async () => {
    const { post, engine } = createTestApp();
    const url = "data:image/png;base64,AAAA";
    const content = [{ type: "image_url", image_url: { url } }];
    const bodies = [JSON.stringify({ messages: [{ role: "user", content }] }), JSON.stringify(chatBody)];
    const response = await post("/v2/models/tiny-alias/infer", { inputs: [tensor("request", bodies)] });
    const { outputs } = (await response.json()) as { outputs: { name: string; data: string[] }[] };
    expect(outputs[0]!.name).toBe("response");
    expect(outputs[0]!.data.map((text) => JSON.parse(text) as object)).toEqual([
      expect.objectContaining({ object: "chat.completion", model: "tiny-alias" }),
      expect.objectContaining({ object: "chat.completion", model: "tiny-alias" }),
    ]);
    expect(engine.requests).toHaveLength(2);
  });

  test.for<[object, RegExp]>([
    [{ inputs: [] }, /^inputs must have a tensor/],
    [{ inputs: [{ ...tensor("text_input", ["A"]), datatype: "FP32" }] }, /^inputs\[0\]\.datatype must be BYTES/],
    [{ inputs: [tensor("pixels", ["A"])] }, /^inputs\[0\]\.name must be one of text_input, request/],
    [
      { inputs: [{ ...tensor("text_input", ["A"]), shape: [2] }] },
      /^inputs\[0\]\.shape has room for 2 elements, .* has 1\.$/,
    ],
    [{ inputs: [tensor("request", ["{"])] }, /^inputs\[0\]\.data\[0\] /],
    [{ inputs: [tensor("request", ["[]"])] }, /^inputs\[0\]\.data\[0\] must be a JSON object/],
    [{ inputs: [tensor("request", ['{"prompt": 4}'])] }, /^inputs\[0\]\.data\[0\]: prompt must be/],
  ])("%j is rejected with a string", async ([body, message]) => {
    const { post } = createTestApp();
    const response = await post("/v2/models/tiny/infer", body);
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ error: expect.stringMatching(message) });
  });
});

test("the metadata names the model and its tensors, and an unknown model is 404", async () => {
  const { app } = createTestApp({ config: { servedModelNames: ["org/tiny"] } });
  expect(await (await app.request("/v2")).json()).toMatchObject({ name: "fovea", extensions: [] });
  expect(await (await app.request("/v2/models/org/tiny")).json()).toMatchObject({
    name: "org/tiny",
    inputs: [{ name: "text_input", datatype: "BYTES", shape: [-1] }, { name: "request" }],
    outputs: [{ name: "text_output" }, { name: "response" }],
  });
  const unknown = await app.request("/v2/models/other/ready");
  expect([unknown.status, await unknown.json()]).toEqual([404, { error: expect.stringContaining("other") }]);
});

test("readiness and liveness follow the state of the service", async () => {
  const { app, engine } = createTestApp();
  const statuses = async () => {
    const paths = ["/v2/health/live", "/v2/health/ready", "/v2/models/tiny/ready"];
    return Promise.all(paths.map(async (path) => (await app.request(path)).status));
  };
  expect(await statuses()).toEqual([200, 200, 200]);
  engine.state = "loading";
  expect(await statuses()).toEqual([200, 503, 503]);
  engine.state = "failed";
  expect(await statuses()).toEqual([503, 503, 503]);
});
