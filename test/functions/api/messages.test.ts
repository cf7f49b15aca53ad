import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { ChatPromptInput } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { readEvents } from "../../support/requests/read-events.ts";
import type { NamedEvent } from "../../support/requests/read-events.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";
import { hello, image, weather } from "./message-parts.ts";

const path = "/v1/messages";
const check = wireSchemas("anthropic-messages.json");
const billing = "x-anthropic-billing-header: cc_version=2.1.240.3d9; cc_entrypoint=cli; cch=74943;";

async function ask(body: object, options?: TestAppOptions) {
  const testApp = createTestApp(options);
  const response = await testApp.post(path, body, { "anthropic-version": "2023-06-01" });
  const answer = (await response.json()) as Record<string, unknown>;
  expect(response.status).toBe(200);
  check("Message", answer);
  return { ...testApp, response, answer, request: testApp.engine.requests.at(0)! };
}

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

test.for<[name: string, content: unknown, isContinued: boolean, numTurns: number]>([
  ["a text", "It is", true, 2],
  ["blocks of text", [{ type: "text", text: "It is" }], true, 2],
  ["thinking alone", [{ type: "thinking", thinking: "Hm", signature: "" }], true, 2],
  [
    "a call",
    [
      { type: "text", text: "a" },
      { type: "tool_use", id: "b", name: "c", input: {} },
    ],
    false,
    2,
  ],
  ["an empty text", "", false, 1],
  ["no blocks", [], false, 1],
  ["thinking that only Anthropic can read", [{ type: "redacted_thinking", data: "AAAA" }], false, 1],
])(
  "a last turn of the assistant with %s is continued, complete or left out",
  async ([, content, isContinued, numTurns]) => {
    const { engine, post } = createTestApp();
    const messages = [
      { role: "user", content: "Which?" },
      { role: "assistant", content },
    ];
    await post(path, { max_tokens: 9, messages });
    const prompt = engine.requests.at(0)!.prompt as ChatPromptInput;
    expect(prompt.addGenerationPrompt).toBe(!isContinued);
    const { continueFinalMessage = false, messages: turns } = prompt;
    expect([continueFinalMessage, turns.length]).toEqual([isContinued, numTurns]);
  },
);

test.for<[content: unknown, path: string]>([
  ["It is ", "messages.1.content"],
  [[{ type: "text", text: "It is\n" }], "messages.1.content.0.text"],
])("a last turn of the assistant cannot end with white space", async ([content, field]) => {
  const messages = [
    { role: "user", content: "Which?" },
    { role: "assistant", content },
  ];
  const response = await createTestApp().post(path, { max_tokens: 9, messages });
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as { readonly error: { readonly message: string } };
  expect(error.message.replaceAll(/\[(\d+)\]/g, ".$1")).toMatch(
    new RegExp(`^${field.replaceAll(".", "\\.")} must not end with white space`),
  );
});

test("every field reaches the engine as the same field of a chat completion", async () => {
  const shared = { temperature: 0.5, top_p: 0.9, top_k: 40, max_tokens: 9, seed: 7, cache_salt: "mine" };
  const { engine, post } = createTestApp({ config: { outputFormats: thinkingFormats } });
  await post(path, {
    ...shared,
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "Which?" },
          image,
          { type: "image", source: { type: "url", url: "https://a.example/b.png" } },
        ],
      },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Hm.", signature: "" },
          { type: "redacted_thinking", data: "AAAA" },
          { type: "text", text: "Let me look." },
          { type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Oslo" } },
        ],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "toolu_1",
            is_error: false,
            content: [{ type: "text", text: "A map:" }, image],
          },
          { type: "text", text: "And now?" },
        ],
      },
    ],
    tools: [{ ...weather, type: "custom" }],
    tool_choice: { type: "auto", disable_parallel_tool_use: true },
    stop_sequences: ["END"],
    thinking: { type: "enabled", budget_tokens: 64 },
    output_config: { effort: "low" },
    metadata: { user_id: "me" },
  });
  const url = "data:image/png;base64,AAAA";
  await post("/v1/chat/completions", {
    ...shared,
    messages: [
      { role: "system", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "text", text: "Which?" },
          { type: "image_url", image_url: { url } },
          { type: "image_url", image_url: { url: "https://a.example/b.png" } },
        ],
      },
      {
        role: "assistant",
        reasoning_content: "Hm.",
        content: "Let me look.",
        tool_calls: [
          { id: "toolu_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } },
        ],
      },
      {
        role: "tool",
        tool_call_id: "toolu_1",
        content: [
          { type: "text", text: "A map:" },
          { type: "image_url", image_url: { url } },
        ],
      },
      { role: "user", content: "And now?" },
    ],
    tools: [
      {
        type: "function",
        function: { name: weather.name, description: weather.description, parameters: weather.input_schema },
      },
    ],
    tool_choice: "auto",
    parallel_tool_calls: false,
    stop: ["END"],
    chat_template_kwargs: { enable_thinking: true },
    thinking_token_budget: 64,
    reasoning_effort: "low",
  });
  const ours = engine.requests.at(0)!;
  const chat = engine.requests.at(1)!;
  expect(ours).toEqual({ ...chat, requestId: ours.requestId });
});

test("system messages among the others are part of the user's turn, as Claude Code sends them", async () => {
  const { request } = await ask({
    max_tokens: 9,
    system: [{ type: "text", text: "You are an agent." }],
    messages: [
      { role: "user", content: [{ type: "text", text: "Fix it." }] },
      { role: "system", content: "Agents: planner." },
    ],
  });
  expect(request.prompt).toMatchObject({
    addGenerationPrompt: true,
    messages: [
      { role: "system", content: "You are an agent." },
      { role: "user", content: "Fix it.\n\nAgents: planner." },
    ],
  });
});

test("adjacent turns of one role are one turn", async () => {
  const { request } = await ask({
    max_tokens: 9,
    messages: [
      { role: "user", content: "Hello?" },
      { role: "user", content: [image, { type: "text", text: "Which?" }] },
      { role: "assistant", content: "A square." },
      { role: "assistant", content: "It is blue." },
      { role: "user", content: "Sure?" },
    ],
  });
  expect(request.prompt).toMatchObject({
    messages: [
      {
        role: "user",
        content: [{ type: "text", text: "Hello?" }, { type: "image" }, { type: "text", text: "Which?" }],
      },
      { role: "assistant", content: "A square.\n\nIt is blue." },
      { role: "user", content: "Sure?" },
    ],
  });
});

test.for<[name: string, system: unknown, content: unknown, expected: string]>([
  [
    "a block of its own",
    [
      { type: "text", text: billing },
      { type: "text", text: "Be brief." },
    ],
    "A note.",
    "Be brief.",
  ],
  ["the first line of a text", `${billing}\nBe brief.`, "A note.", "Be brief."],
  [
    "a message",
    "Be brief.",
    [
      { type: "text", text: billing },
      { type: "text", text: "A note." },
    ],
    "Be brief.",
  ],
])("Claude Code's note about its request is not part of the prompt: %s", async ([, system, content, expected]) => {
  const { request } = await ask({ ...hello, system, messages: [...hello.messages, { role: "system", content }] });
  expect(request.prompt).toMatchObject({
    messages: [
      { role: "system", content: expected },
      { role: "user", content: "Hello?\n\nA note." },
    ],
  });
});

test("a prompt of Claude Code's note alone has no system message", async () => {
  const { request } = await ask({ ...hello, system: [{ type: "text", text: billing }] });
  expect(request.prompt).toMatchObject({ messages: [{ role: "user", content: "Hello?" }] });
});

test.for<[object, object]>([
  [{ thinking: { type: "disabled" } }, { enable_thinking: false }],
  [{ thinking: { type: "adaptive" } }, { enable_thinking: true }],
  [{ thinking: { type: "disabled" }, chat_template_kwargs: { enable_thinking: true } }, { enable_thinking: true }],
])("%j sets variables of the chat template", async ([fields, expected]) => {
  const { request } = await ask({ ...hello, ...fields });
  expect(request.prompt).toMatchObject({ templateArguments: expected });
});

test.for([
  ["output_config.format", (format: object) => ({ output_config: { format } })],
  ["output_format", (format: object) => ({ output_format: format })],
] as const)("%s prescribes the form of the text", async ([name, fieldOf]) => {
  const schema = { type: "object", properties: { shape: { type: "string" } } };
  const { request } = await ask({ ...hello, ...fieldOf({ type: "json_schema", schema }) });
  expect(request.samplingParams.structuredOutput).toEqual({ kind: "json-schema", schema: JSON.stringify(schema) });
  const wrong = await createTestApp().post(path, { ...hello, ...fieldOf({ type: "yaml" }) });
  expect(await wrong.json()).toMatchObject({ error: { message: expect.stringContaining(`${name}.type must be`) } });
  const refusal = new EngineError("invalid_argument", "It has no end.", {
    parameter: "samplingParams.structuredOutput",
  });
  const refused = createTestApp({ script: [refusal] });
  const response = await refused.post(path, { ...hello, ...fieldOf({ type: "json_schema", schema }) });
  expect(await response.json()).toMatchObject({ error: { message: `${name}: It has no end.` } });
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

test("a client that leaves a stream frees the sequence", async () => {
  const { post, engine, service } = createTestApp({ script: ["a", hang] });
  const reader = (await post(path, { ...hello, stream: true })).body!.getReader();
  await reader.read();
  await reader.cancel();
  await expect.poll(() => engine.numAborted).toBe(1);
  expect(service.numRequests).toBe(0);
});

test("documents and results of searches are shown as text", async () => {
  const about = { title: "Harbours", context: "From 1999" };
  const content = [
    { type: "document", source: { type: "text", media_type: "text/plain", data: "Hamburg." }, ...about },
    { type: "document", source: { type: "content", content: [{ type: "text", text: "Bremen." }] } },
    { type: "text", text: "Which is larger?" },
  ];
  const found = { type: "search_result", source: "https://example.org/a", title: "Ports", content: content.slice(2) };
  const calls = [
    { role: "assistant", content: [{ type: "tool_use", id: "1", name: "search", input: {} }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: [found] }] },
  ];
  const { request } = await ask({ ...hello, messages: [{ role: "user", content }, ...calls] });
  const { messages } = request.prompt as ChatPromptInput;
  expect(messages.at(0)!.content).toEqual([
    {
      type: "text",
      text:
        "<document>\n<title>\nHarbours\n</title>\n<context>\nFrom 1999\n</context>\n" +
        "<document_content>\nHamburg.\n</document_content>\n</document>",
    },
    { type: "text", text: "<document>\n<document_content>\nBremen.\n</document_content>\n</document>" },
    { type: "text", text: "Which is larger?" },
  ]);
  expect(messages.at(-1)!.content).toBe(
    "<search_result>\n<source>\nhttps://example.org/a\n</source>\n<title>\nPorts\n</title>\n" +
      "<content>\nWhich is larger?\n</content>\n</search_result>",
  );
});

test.for([
  [{ source: { type: "base64", media_type: "application/pdf", data: "AA==" } }, /send the pages of a PDF as image/],
  [{ source: { type: "text", media_type: "text/plain", data: "a" }, citations: { enabled: true } }, /not supported/],
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
