import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { readEvents } from "../../support/requests/read-events.ts";
import type { NamedEvent } from "../../support/requests/read-events.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";
import { ask, check, hello, path, weather } from "./message-parts.ts";

async function stream(body: object, options?: TestAppOptions): Promise<NamedEvent[]> {
  const events = await readEvents(await createTestApp(options).post(path, { ...body, stream: true }));
  for (const { name, data } of events) {
    check("RawMessageStreamEvent", data);
    expect(name).toBe(data["type"]);
  }
  return events;
}

test("an answer is a message of the published shape", async () => {
  const { answer, response } = await ask(hello);
  expect(answer).toMatchObject({
    id: expect.stringMatching(/^msg_/),
    type: "message",
    role: "assistant",
    model: "tiny",
    content: [{ type: "text", text: "Hello." }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: 5, output_tokens: 3, cache_read_input_tokens: 0 },
  });
  expect(response.headers.get("request-id")).toBe(response.headers.get("x-request-id"));
});

test("a stream has Anthropic's events in their order, and no [DONE]", async () => {
  const events = await stream(hello);
  expect(events.map(({ name }) => name)).toEqual([
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  expect(events.at(0)!.data).toMatchObject({ message: { content: [], usage: { input_tokens: 5, output_tokens: 0 } } });
  expect(events.at(1)!.data).toMatchObject({ index: 0, content_block: { type: "text", text: "" } });
  expect(events.at(6)!.data).toMatchObject({ delta: { stop_reason: "end_turn" }, usage: { output_tokens: 3 } });
});

test.for([
  [{ finishReason: "length" as const }, { stop_reason: "max_tokens", stop_sequence: null }],
  [{ stopReason: "END" }, { stop_reason: "stop_sequence", stop_sequence: "END" }],
  [{ stopReason: 7 }, { stop_reason: "end_turn", stop_sequence: null }],
] as const)("an output with %j ends with %j", async ([output, expected]) => {
  const script = [{ text: "Hello", ...output }];
  const { answer } = await ask(hello, { script });
  expect(answer).toMatchObject(expected);
  const events = await stream(hello, { script });
  expect(events.at(-2)!.data).toMatchObject({ type: "message_delta", delta: expected });
});

test("a message of no tokens has only its prompt computed", async () => {
  const empty = { ...hello, max_tokens: 0 };
  const options = { script: ["<think>Hel", "lo"], config: { outputFormats: thinkingFormats } };
  const { answer, request } = await ask(empty, options);
  expect(request.samplingParams.maxTokens).toBe(1);
  expect(answer).toMatchObject({
    content: [],
    stop_reason: "max_tokens",
    usage: { input_tokens: 5, output_tokens: 0, output_tokens_details: { thinking_tokens: 0 } },
  });
  const events = await stream(empty, options);
  expect(events.map(({ name }) => name)).toEqual(["message_start", "message_delta", "message_stop"]);
  expect(events.at(1)!.data).toMatchObject({ delta: { stop_reason: "max_tokens" }, usage: { output_tokens: 0 } });
});

test("cached tokens are counted apart from the others of the prompt", async () => {
  const { answer } = await ask(hello, { script: [{ text: "a", numPromptTokens: 9, numCachedTokens: 7 }] });
  expect(answer["usage"]).toMatchObject({ input_tokens: 2, cache_read_input_tokens: 7, output_tokens: 1 });
});

test("a silence is filled with pings", async () => {
  const later = Promise.withResolvers<void>();
  const { post } = createTestApp({ script: [later.promise, "a"], keepAliveMs: 5 });
  const response = await post(path, { ...hello, stream: true });
  const reading = readEvents(response);
  setTimeout(() => later.resolve(), 50);
  const events = await reading;
  expect(events[0]).toEqual({ name: "ping", data: { type: "ping" } });
  expect(events.at(-1)!.name).toBe("message_stop");
});

test("thinking has no effect on a model that does not mark it, with a warning", async () => {
  const { request, response } = await ask({ ...hello, thinking: { type: "enabled", budget_tokens: 64 } });
  expect(response.headers.get("x-fovea-warning")).toMatch(/thinking has no effect/);
  expect(request.samplingParams.reasoning).toBeNull();
});

test.for<[string, (cited: object) => readonly object[]]>([
  ["document", (cited) => [cited]],
  ["result of a tool", (cited) => [{ type: "tool_result", tool_use_id: "a", content: [cited] }]],
])("citations of a %s are not made, with a warning", async ([, contentWith]) => {
  const document = { type: "document", source: { type: "text", media_type: "text/plain", data: "Snow is white." } };
  const askWith = (enabled: boolean) =>
    ask({
      ...hello,
      tools: [weather],
      messages: [
        ...hello.messages,
        { role: "assistant", content: [{ type: "tool_use", id: "a", name: "get_weather", input: {} }] },
        { role: "user", content: contentWith({ ...document, citations: { enabled } }) },
      ],
    });
  const [cited, plain] = [await askWith(true), await askWith(false)];
  expect(cited.response.headers.get("x-fovea-warning")).toMatch(/makes no citations/);
  expect(plain.response.headers.get("x-fovea-warning")).toBeNull();
  expect(cited.request.prompt).toEqual(plain.request.prompt);
});

test("tools of Anthropic's are left out, with a warning", async () => {
  const { request, response } = await ask({
    ...hello,
    tools: [{ type: "web_search_20260318", name: "web_search", max_uses: 5 }, weather],
  });
  expect(response.headers.get("x-fovea-warning")).toMatch(/web_search_20260318/);
  expect(request.prompt).toMatchObject({ tools: [{ name: "get_weather" }] });
});

describe("a failure", () => {
  test.for<[EngineError, number, string]>([
    [new EngineError("queue_full", "Full."), 429, "rate_limit_error"],
    [new EngineError("prompt_too_long", "6 of 5."), 400, "invalid_request_error"],
    [new EngineError("not_ready", "Loading."), 503, "overloaded_error"],
    [new EngineError("internal", "A bug."), 500, "api_error"],
  ])("with %s has status %i and Anthropic's body", async ([error, status, type]) => {
    const { post } = createTestApp({ script: [error] });
    const response = await post(path, hello);
    const answer: unknown = await response.json();
    check("ErrorResponse", answer);
    expect([response.status, answer]).toEqual([status, expect.objectContaining({ type: "error" })]);
    expect(answer).toMatchObject({ error: { type }, request_id: response.headers.get("request-id") });
  });

  test("of a prompt that is too long starts with the words that Anthropic's clients look for", async () => {
    const error = new EngineError("prompt_too_long", "The prompt has 6 tokens.", { parameter: "prompt" });
    for (const isStream of [false, true]) {
      const response = await createTestApp({ script: [error] }).post(path, { ...hello, stream: isStream });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({
        error: { type: "invalid_request_error", message: "prompt is too long: The prompt has 6 tokens." },
      });
    }
  });

  test("in the middle of a stream is an error event", async () => {
    const events = await stream(hello, { script: ["Hel", new EngineError("runtime_failed", "A secret.")] });
    expect(events.at(-1)).toMatchObject({
      name: "error",
      data: { type: "error", error: { type: "api_error", message: expect.stringMatching(/Internal error/) } },
    });
  });

  test("without a route, or with another method, has Anthropic's body too", async () => {
    const { app } = createTestApp();
    for (const [target, status] of [
      [path, 405],
      [`${path}/batches`, 404],
    ] as const) {
      const response = await app.request(target);
      expect(response.status).toBe(status);
      check("ErrorResponse", await response.json());
    }
  });
});

describe("keys", () => {
  const config = { apiKeys: ["key-one"] };

  test.for([path, `${path}/count_tokens`])("%s accepts x-api-key and a bearer key", async (route) => {
    const { post } = createTestApp({ config });
    expect((await post(route, hello, { "x-api-key": "key-one" })).status).toBe(200);
    expect((await post(route, hello, { authorization: "Bearer key-one" })).status).toBe(200);
    for (const headers of [{}, { "x-api-key": "" }, { "x-api-key": "key-two" }]) {
      const response = await post(route, hello, headers);
      expect(response.status).toBe(401);
      const answer = (await response.json()) as object;
      check("ErrorResponse", answer);
      expect(answer).toMatchObject({ error: { type: "authentication_error" } });
    }
  });

  test("x-api-key opens no other route", async () => {
    const { post } = createTestApp({ config });
    expect((await post("/v1/responses", { input: "a" }, { "x-api-key": "key-one" })).status).toBe(401);
    expect((await post("/v1/responses", { input: "a" }, { authorization: "Bearer key-one" })).status).toBe(200);
  });
});

test("the id that Anthropic's clients show is in every answer to them, and in no other", async () => {
  const { app, post } = createTestApp({ config: { apiKeys: ["key"] } });
  const authorization = "Bearer key";
  const anthropic = { authorization, "anthropic-version": "2023-06-01" };
  const answers = [
    await post(path, hello, anthropic),
    await post(path, { ...hello, request_id: "own-id" }, anthropic),
    await post(path, hello),
    await post(`${path}/batches`, {}, anthropic),
    await app.request(path, { headers: anthropic }),
    await app.request("/v1/models", { headers: anthropic }),
    await app.request("/v1/models/other", { headers: anthropic }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 401, 404, 405, 200, 404]);
  for (const { headers } of answers) expect(headers.get("request-id")).toBe(headers.get("x-request-id"));
  const others = [
    await app.request("/v1/models", { headers: { authorization } }),
    await post("/v1/responses", { input: "a" }, anthropic),
  ];
  expect(others.map(({ headers }) => headers.get("request-id"))).toEqual([null, null]);
});

test("a client that leaves a stream frees the sequence", async () => {
  const { post, engine, service } = createTestApp({ script: ["a", hang] });
  const reader = (await post(path, { ...hello, stream: true })).body!.getReader();
  await reader.read();
  await reader.cancel();
  await expect.poll(() => engine.numAborted).toBe(1);
  expect(service.numRequests).toBe(0);
});

test.for([
  [{ source: { type: "base64", media_type: "text/csv", data: "AA==" } }, /must be application\/pdf/],
  [{ source: { type: "files", file_id: "a" } }, /must be base64, url, file, text or content/],
  [{ source: { type: "file", id: "a" } }, /file_id must be a string/],
  [{ source: { type: "text", media_type: "text/plain", data: "a" }, citations: true }, /citations must be an object/],
] as const)("a document %j is rejected", async ([fields, reason]) => {
  const content = [{ type: "document", ...fields }];
  const response = await createTestApp().post(path, { ...hello, messages: [{ role: "user", content }] });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { message: expect.stringMatching(reason) } });
});

test("fields without an effect are accepted", async () => {
  const { request } = await ask({
    ...hello,
    system: "",
    service_tier: "auto",
    context_management: { edits: [] },
    cache_control: { type: "ephemeral" },
    mcp_servers: [],
    return_token_ids: false,
    tools: [],
    tool_choice: { type: "auto" },
  });
  expect(request.prompt).toMatchObject({ messages: [{ role: "user", content: "Hello?" }] });
});

test("count_tokens gives the tokens of the prompt, and generates nothing", async () => {
  const { post, engine } = createTestApp();
  const response = await post(`${path}/count_tokens`, { model: "tiny", messages: hello.messages });
  const answer = await response.json();
  check("MessageTokensCount", answer);
  expect(answer).toEqual({ input_tokens: 4 });
  expect(engine.requests).toHaveLength(0);
  expect((await post(`${path}/count_tokens`, { messages: [] })).status).toBe(400);
});
