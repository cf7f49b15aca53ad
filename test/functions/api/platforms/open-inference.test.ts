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

test("Triton's client has its answer: without a content type, with its parameters, and under a version", async () => {
  const { app } = createTestApp({ config: { servedModelNames: ["org/tiny"] } });
  const infer = (path: string, headers: Record<string, string> = {}) => {
    const parameters = { binary_data_output: true };
    const outputs = [{ name: "text_output", parameters: { binary_data: true } }];
    const body = JSON.stringify({ inputs: [tensor("text_input", ["A"])], outputs, parameters });
    // Bytes, because fetch gives a text a content type.
    return app.request(path, { method: "POST", headers, body: new TextEncoder().encode(body) });
  };
  const paths = ["/v2/models/org/tiny", "/v2/models/org/tiny/versions/1"];
  for (const path of paths) {
    const response = await infer(`${path}/infer`);
    expect([response.status, await response.json()]).toEqual([
      200,
      expect.objectContaining({
        model_name: "org/tiny",
        model_version: "1",
        outputs: [tensor("text_output", ["Hello."])],
      }),
    ]);
    expect(await (await app.request(`${path}/ready`)).json()).toEqual({ name: "org/tiny", ready: true });
    expect(await (await app.request(path)).json()).toMatchObject({ name: "org/tiny", versions: ["1"] });
  }
  for (const path of ["/versions/2/infer", "/versions/2/ready", "/versions/2"].map((end) => paths[0]! + end)) {
    const response = await (path.endsWith("infer") ? infer(path) : app.request(path));
    const error = "The model `org/tiny` has version 1 only, not 2.";
    expect([response.status, await response.json()]).toEqual([404, { error }]);
  }
  const binary = await infer(`${paths[0]!}/infer`, {
    "inference-header-content-length": "10",
    "content-type": "application/octet-stream",
  });
  expect([binary.status, await binary.json()]).toEqual([
    400,
    { error: expect.stringMatching(/^Binary tensors are not supported: .* binary_data=False/) },
  ]);
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
