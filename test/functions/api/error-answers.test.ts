/** The answers to bodies that cannot be read, to unknown paths and models, and to failures of the engine. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { EngineErrorCode } from "../../../engine/index.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";

interface ErrorAnswer {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

const longKey = "x".repeat(200_000);

test.for<[EngineErrorCode, number, string, string]>([
  ["invalid_argument", 400, "invalid_argument", "invalid_request_error"],
  ["prompt_too_long", 400, "context_length_exceeded", "invalid_request_error"],
  ["too_many_images", 400, "too_many_images", "invalid_request_error"],
  ["invalid_image_reference", 400, "invalid_image_reference", "invalid_request_error"],
  ["image_unreachable", 422, "image_unreachable", "invalid_request_error"],
  ["image_too_large", 400, "image_too_large", "invalid_request_error"],
  ["invalid_image", 400, "invalid_image", "invalid_request_error"],
  ["queue_full", 429, "queue_full", "rate_limit_error"],
  ["not_ready", 503, "model_loading", "server_error"],
  ["closed", 503, "shutting_down", "server_error"],
])("the engine's %s is answered with %i %s", async ([code, status, wireCode, type]) => {
  const { post } = createTestApp({ script: [new EngineError(code, "What happened, 5 of 4.")] });
  for (const stream of [false, true]) {
    const response = await post("/v1/chat/completions", { ...chatBody, stream });
    expect(response.status).toBe(status);
    expect(await response.json()).toEqual({
      error: { message: "What happened, 5 of 4.", type, param: null, code: wireCode },
    });
    expect(response.headers.has("retry-after")).toBe(status === 429 || status === 503);
  }
});

test.for([
  ["prompt.images[0]", "messages[0].content[1].image_url"],
  ["prompt.images[1]", "messages[2].content[0].image_url"],
  ["prompt.messages", "messages"],
  ["prompt", "messages"],
  ["samplingParams.topP", "top_p"],
  ["samplingParams.extraArgs", "vllm_xargs"],
  ["samplingParams.logitBias", "logit_bias"],
  ["samplingParams.structuredOutput", "response_format"],
  ["numChoices", "n"],
  ["templateArguments", "chat_template_kwargs"],
] as const)("the engine's %s is %s on the wire", async ([parameter, param]) => {
  const image = { type: "image_url", image_url: { url: "https://example.com/a.png" } };
  const messages = [
    { role: "user", content: [{ type: "text", text: "a" }, image] },
    { role: "assistant", content: "b" },
    { role: "user", content: [image, "c"] },
  ];
  const { post } = createTestApp({ script: [new EngineError("image_unreachable", "Gone.", { parameter })] });
  const { error } = (await (await post("/v1/chat/completions", { messages })).json()) as ErrorAnswer;
  expect(error.param).toBe(param);
});

test.for([
  new EngineError("internal", "Invariant broken at /srv/fovea/engine/core.ts"),
  new EngineError("runtime_failed", "/srv/lib/libonnxruntime.so said no"),
  new TypeError("Cannot read properties of undefined (reading 'secret')"),
])("an internal failure reveals nothing, and is logged with its stack: %s", async (failure) => {
  const { post, log } = createTestApp({ script: [failure] });
  const response = await post("/v1/chat/completions", chatBody, { "x-request-id": "req-17" });
  expect(response.status).toBe(500);
  const text = await response.text();
  expect(text).toContain("req-17");
  expect(text).not.toMatch(/srv|secret|Invariant|\.ts|at /);
  expect(JSON.parse(text)).toMatchObject({ error: { type: "server_error", code: "internal_error", param: null } });
  expect(log).toContainEqual(
    expect.objectContaining({
      level: "error",
      requestId: "req-17",
      error: expect.objectContaining({ stack: expect.any(String) }),
    }),
  );
});

test("a failed logits processor is named to the client, with its own message", async () => {
  const message = "The logits processor steering.target_token:TargetToken failed: target_token is 9999, of 512 tokens";
  const { post, log } = createTestApp({ script: [new EngineError("logits_processor_failed", message)] });
  const response = await post("/v1/chat/completions", chatBody);
  expect(response.status).toBe(500);
  expect(await response.json()).toMatchObject({
    error: { message, type: "server_error", code: "logits_processor_failed" },
  });
  expect(log).toContainEqual(expect.objectContaining({ level: "error" }));
});

test("invalid JSON is reported with its position but none of its text", async () => {
  const response = await createTestApp().post("/v1/chat/completions", '{"messages": secret-image-bytes');
  expect(await response.text()).not.toContain("secret");
});

test("a body above the limit is rejected, announced or not", async () => {
  const { post, app } = createTestApp();
  const body = JSON.stringify({ ...chatBody, user: longKey });
  const announced = await post("/v1/chat/completions", body, { "content-length": String(body.length) });
  expect(announced.status).toBe(413);
  expect(announced.headers.get("connection")).toBe("close");
  expect(await announced.json()).toMatchObject({
    error: {
      code: "body_too_large",
      message: `The body has ${body.length} bytes; the limit is 100000. MAX_BODY_BYTES sets the limit.`,
    },
  });
  const unannounced = await app.request("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: new Blob([body]).stream(),
    duplex: "half",
  });
  expect(unannounced.status).toBe(413);
});

test("a body that is not UTF-8 is rejected", async () => {
  const { app } = createTestApp();
  const response = await app.request("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: Buffer.from([0x7b, 0xff, 0xfe, 0x7d]),
  });
  expect(response.status).toBe(400);
});

test.for(["text/plain", "multipart/form-data; boundary=x", ""])("content type %j is rejected", async (contentType) => {
  const response = await createTestApp().post("/v1/chat/completions", chatBody, { "content-type": contentType });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: "unsupported_media_type" } });
});

test("a content type may include a charset", async () => {
  const contentType = "Application/JSON; charset=utf-8";
  const response = await createTestApp().post("/v1/chat/completions", chatBody, { "content-type": contentType });
  expect(response.status).toBe(200);
});

test("an unknown model is 404 with param model", async () => {
  const response = await createTestApp().post("/v1/chat/completions", { ...chatBody, model: "gpt-9" });
  expect(response.status).toBe(404);
  expect(await response.json()).toEqual({
    error: {
      message: "The model `gpt-9` does not exist. This service has `tiny`; GET /v1/models lists all names.",
      type: "invalid_request_error",
      param: "model",
      code: "model_not_found",
    },
  });
});

test("unknown paths and wrong methods are answered in JSON", async () => {
  const { app } = createTestApp();
  const missing = await app.request("/v2/anything");
  expect(missing.status).toBe(404);
  expect(await missing.json()).toMatchObject({ error: { code: "not_found" } });
  const wrongMethod = await app.request("/v1/chat/completions");
  expect(wrongMethod.status).toBe(405);
  expect(wrongMethod.headers.get("allow")).toBe("POST");
  expect(await wrongMethod.json()).toMatchObject({ error: { code: "method_not_allowed" } });
  expect((await app.request("/v1/models/tiny", { method: "DELETE" })).status).toBe(405);
});
