/**
 * KServe as the caller of the container: version 2 of the Open Inference Protocol, read on 2026-11-22:
 * https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
 */
import { gzipSync } from "node:zlib";
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

describe("binary tensors", () => {
  const lengthHeader = "inference-header-content-length";
  const octets = "application/octet-stream";

  /** Each element with its length in front. */
  const bytesOf = (elements: readonly (string | Uint8Array)[]): Buffer =>
    Buffer.concat(
      elements.flatMap((element) => {
        const length = Buffer.alloc(4);
        length.writeUInt32LE(Buffer.from(element).byteLength);
        return [length, Buffer.from(element)];
      }),
    );

  /** As `InferInput.set_data_from_numpy` of both clients sends it. */
  function binaryRequest(elements: readonly (string | Uint8Array)[], { name = "text_input", fields = {} } = {}) {
    const tail = bytesOf(elements);
    const parameters = { binary_data_size: tail.byteLength };
    const inputs = [{ name, shape: [elements.length, 1], datatype: "BYTES", parameters }];
    return { json: { inputs, ...fields }, tail };
  }

  function bodyOf({ json, tail }: { readonly json: object; readonly tail: Uint8Array }) {
    const head = Buffer.from(JSON.stringify(json));
    return { headers: { [lengthHeader]: String(head.byteLength) }, body: Buffer.concat([head, tail]) };
  }

  function createSender(options: Parameters<typeof createTestApp>[0] = {}) {
    const { app, engine } = createTestApp(options);
    const infer = (request: {
      readonly headers?: Record<string, string>;
      readonly body: string | Uint8Array<ArrayBuffer>;
    }) => app.request("/v2/models/tiny/infer", { method: "POST", ...request });
    return { infer, engine };
  }

  async function readBinary(response: Response) {
    const bytes = Buffer.from(await response.arrayBuffer());
    const length = Number(response.headers.get(lengthHeader) ?? bytes.byteLength);
    return { json: JSON.parse(bytes.subarray(0, length).toString()) as object, tail: bytes.subarray(length) };
  }

  test("prompts are read from behind the JSON, and their texts are written there", async () => {
    const { infer } = createSender({ script: (prompt) => [`${prompt}ü!`] });
    const fields = { id: "7", parameters: { binary_data_output: true, max_tokens: 3 } };
    const { headers, body } = bodyOf(binaryRequest(["Aé", "\ufeffB"], { fields }));
    const response = await infer({ headers: { ...headers, "content-type": octets }, body });
    expect([response.status, response.headers.get("content-type")]).toEqual([200, octets]);
    const tail = bytesOf(["Aéü!", "\ufeffBü!"]);
    expect(await readBinary(response)).toEqual({
      json: {
        model_name: "tiny",
        model_version: "1",
        id: "7",
        outputs: [
          {
            name: "text_output",
            shape: [2, 1],
            datatype: "BYTES",
            parameters: { binary_data_size: tail.byteLength },
          },
        ],
      },
      tail,
    });
  });

  test("bodies are read compressed, beyond the length that is parsed on the main thread", async () => {
    const { infer, engine } = createSender({ config: { maxBodyBytes: 2 ** 23 } });
    const request = binaryRequest([JSON.stringify(chatBody)], { name: "request", fields: { x: "a".repeat(2 ** 21) } });
    const { headers, body } = bodyOf(request);
    const response = await infer({ headers: { ...headers, "content-encoding": "gzip" }, body: gzipSync(body) });
    const { outputs } = (await response.json()) as { outputs: { name: string; data: string[] }[] };
    expect(JSON.parse(outputs[0]!.data[0]!)).toMatchObject({ object: "chat.completion", model: "tiny" });
    expect(engine.requests).toHaveLength(1);
  });

  test.for<[string, { binary_data_output?: boolean }, { binary_data?: boolean } | null, boolean]>([
    ["nothing", {}, null, false],
    ["all outputs", { binary_data_output: true }, null, true],
    ["the output", {}, { binary_data: true }, true],
    ["all outputs but this one", { binary_data_output: true }, { binary_data: false }, false],
    ["all outputs, also this one", { binary_data_output: true }, {}, true],
  ])("an answer is binary if it is asked for: %s", async ([, parameters, ofOutput, isBinary]) => {
    const { infer } = createSender();
    const outputs = ofOutput === null ? undefined : [{ name: "text_output", parameters: ofOutput }];
    const response = await infer(bodyOf(binaryRequest(["A"], { fields: { parameters, outputs } })));
    expect([response.status, response.headers.has(lengthHeader)]).toEqual([200, isBinary]);
    const { json, tail } = await readBinary(response);
    expect(json).toMatchObject({
      outputs: [isBinary ? { parameters: { binary_data_size: 10 } } : { data: ["Hello."] }],
    });
    expect(tail).toEqual(isBinary ? bytesOf(["Hello."]) : Buffer.alloc(0));
  });

  const right = binaryRequest(["A", "B"]);
  const withInput = (changes: object, tail: Uint8Array = right.tail) => ({
    json: { inputs: [{ ...right.json.inputs[0], ...changes }] },
    tail,
  });
  const sized = (tail: Uint8Array) => withInput({ parameters: { binary_data_size: tail.byteLength } }, tail);
  const longElement = Buffer.from([255, 255, 255, 255, 65]);
  test.for<[string, { readonly json: object; readonly tail: Uint8Array }, RegExp]>([
    ["too few elements", withInput({ shape: [3] }), /^inputs\[0\] has 2 elements in its 10 bytes, but .* has 3\.$/],
    ["too many elements", withInput({ shape: [1] }), /^inputs\[0\] has 5 bytes after its 1 elements\.$/],
    ["a shape of many", withInput({ shape: [2 ** 31, 2 ** 20] }), /^inputs\[0\]\.shape must have 1 to 128 elements/],
    ["a shape of none", withInput({ shape: [0] }), /^inputs\[0\]\.shape must have 1 to 128 elements, not 0/],
    ["a length beyond the tensor", sized(longElement), /^inputs\[0\]\.data\[0\] has 4294967295 bytes, but only 1 /],
    ["half a length", sized(Buffer.from([1, 0])), /^inputs\[0\] has 0 elements in its 2 bytes/],
    ["bytes that are not UTF-8", binaryRequest([Buffer.from([255])]), /^inputs\[0\]\.data\[0\] is not UTF-8/],
    ["a size beyond the body", withInput({ parameters: { binary_data_size: 99 } }), /is 99, but 10 bytes follow/],
    ["a negative size", withInput({ parameters: { binary_data_size: -1 } }), /binary_data_size must be at least 0/],
    ["no size", withInput({ parameters: {} }), /^inputs\[0\]\.data must be a list of strings, or follow the JSON/],
    ["bytes of no tensor", withInput({ parameters: {}, data: ["A", "B"] }), /must say whose the 10 bytes/],
    ["both forms", withInput({ data: ["A", "B"] }), /^inputs\[0\] must have data or parameters\.binary_data_size/],
    ["numbers", withInput({ datatype: "FP32" }), /^inputs\[0\]\.datatype must be BYTES/],
    [
      "shared memory",
      withInput({ parameters: { shared_memory_region: "a" } }),
      /^inputs\[0\]\.parameters must not have shared_memory_region/,
    ],
    [
      "an unknown output",
      binaryRequest(["A"], { fields: { outputs: [{ name: "logits" }] } }),
      /^unexpected inference output 'logits' for model 'tiny': text_input gives text_output \(outputs\[0\]\.name\)\.$/,
    ],
    [
      "the output of the other input",
      binaryRequest(["A"], { fields: { outputs: [{ name: "response" }] } }),
      /^unexpected inference output 'response'/,
    ],
    [
      "a text for a flag",
      binaryRequest(["A"], { fields: { parameters: { binary_data_output: "yes" } } }),
      /^parameters\.binary_data_output must be true or false/,
    ],
  ])("%s is rejected", async ([, request, message]) => {
    const { infer, engine } = createSender();
    const response = await infer(bodyOf(request));
    expect([response.status, await response.json()]).toEqual([400, { error: expect.stringMatching(message) }]);
    expect(engine.requests).toEqual([]);
  });

  test("a length of the JSON that does not fit is rejected, and so is a size without one", async () => {
    const { infer } = createSender();
    const { body } = bodyOf(right);
    const errorOf = async (headers: Record<string, string>) => (await infer({ headers, body })).json();
    for (const [length, message] of [
      ["-1", /^Inference-Header-Content-Length must be the length .* not "-1"\.$/],
      ["1e3", /^Inference-Header-Content-Length must be/],
      ["999999", new RegExp(`^The body has ${body.byteLength} bytes, but its header says that 999999 bytes of JSON`)],
      ["3", /^The JSON of the body is not valid JSON/],
    ] as const) {
      expect(await errorOf({ [lengthHeader]: length })).toEqual({ error: expect.stringMatching(message) });
    }
    const response = await infer({
      headers: { "content-type": "application/json" },
      body: JSON.stringify(right.json),
    });
    expect([response.status, await response.json()]).toEqual([
      400,
      { error: expect.stringMatching(/binary_data_size needs the header Inference-Header-Content-Length/) },
    ]);
  });
});

test("Triton's client has its answer: without a content type, with its parameters, and under a version", async () => {
  const { app } = createTestApp({ config: { servedModelNames: ["org/tiny"] } });
  const infer = (path: string) => {
    const outputs = [{ name: "text_output", parameters: { binary_data: false } }];
    const body = JSON.stringify({ inputs: [tensor("text_input", ["A"])], outputs });
    // Bytes, because fetch gives a text a content type.
    return app.request(path, { method: "POST", body: new TextEncoder().encode(body) });
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
});

test("the metadata names the model and its tensors, and an unknown model is 404", async () => {
  const { app } = createTestApp({ config: { servedModelNames: ["org/tiny"] } });
  expect(await (await app.request("/v2")).json()).toMatchObject({ name: "fovea", extensions: ["binary_tensor_data"] });
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
