import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { hang } from "../../support/engine/scripted-engine.ts";
import { readEvents } from "../../support/requests/read-events.ts";
import type { NamedEvent } from "../../support/requests/read-events.ts";
import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";
import { picture, weather } from "./response-parts.ts";

const path = "/v1/responses";
const check = wireSchemas("openai-responses.json");

interface ResponseAnswer {
  readonly id: string;
  readonly status: string;
  readonly output: readonly { readonly type: string; readonly status: string; readonly content: unknown }[];
  readonly usage: unknown;
  readonly incomplete_details: unknown;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly [field: string]: unknown;
}

async function respond(body: object, options?: TestAppOptions) {
  const testApp = createTestApp(options);
  const response = await testApp.post(path, body);
  const answer = (await response.json()) as ResponseAnswer;
  expect(response.status).toBe(200);
  check("Response", answer);
  return { ...testApp, response, answer, request: testApp.engine.requests.at(0)! };
}

async function stream(body: object, options?: TestAppOptions): Promise<NamedEvent[]> {
  const events = await readEvents(await createTestApp(options).post(path, { ...body, stream: true }));
  for (const [index, { name, data }] of events.entries()) {
    check("ResponseStreamEvent", data);
    expect([name, data["sequence_number"]]).toEqual([data["type"], index]);
  }
  return events;
}

test("an answer is one message with its usage, of the published shape", async () => {
  const { answer } = await respond({ model: "tiny", input: "Hello?", metadata: { a: "b" }, store: true, user: "me" });
  expect(answer).toMatchObject({
    id: expect.stringMatching(/^resp_/),
    object: "response",
    status: "completed",
    model: "tiny",
    metadata: { a: "b" },
    user: "me",
    output: [
      {
        id: expect.stringMatching(/^msg_/),
        type: "message",
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "Hello.", annotations: [], logprobs: [] }],
      },
    ],
    usage: {
      input_tokens: 5,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 3,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 8,
    },
  });
});

test("a stream has OpenAI's events in their order, numbered without a gap, and no [DONE]", async () => {
  const events = await stream({ input: "Hello?" });
  expect(events.map(({ name }) => name)).toEqual([
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
  ]);
  expect(events.at(3)!.data).toMatchObject({ part: { type: "output_text", text: "" } });
  expect(events.at(7)!.data).toMatchObject({ text: "Hello." });
  expect(events.at(0)!.data).toMatchObject({ response: { status: "in_progress", output: [] } });
  expect(events.at(10)!.data).toMatchObject({ response: { status: "completed", output: [{ type: "message" }] } });
});

test.for<[object, object]>([
  [{}, { temperature: 0.3, top_p: 0.8, presence_penalty: 0, frequency_penalty: 0 }],
  [
    { temperature: 0, top_p: 1, presence_penalty: 0.5 },
    { temperature: 0, top_p: 1, presence_penalty: 0.5, frequency_penalty: 0 },
  ],
])("an answer to %j says how it was sampled, and that it is not stored", async ([fields, expected]) => {
  const defaultSamplingParams = { temperature: 0.3, topP: 0.8 };
  const { answer } = await respond({ input: "Hello?", store: true, ...fields }, { defaultSamplingParams });
  expect(answer).toMatchObject({ ...expected, store: false });
  const events = await stream({ input: "Hello?", ...fields }, { defaultSamplingParams });
  expect(events.at(0)!.data).toMatchObject({ response: expected });
});

test("every field reaches the engine as the same field of a chat completion", async () => {
  const shared = {
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    seed: 7,
    stop: ["END"],
    vllm_xargs: { target: 5 },
    cache_salt: "mine",
    mm_processor_kwargs: { size: 5 },
    chat_template_kwargs: { style: "short" },
  };
  const { engine, post } = createTestApp();
  await post(path, {
    ...shared,
    instructions: "Be brief.",
    input: [
      {
        role: "user",
        content: [
          { type: "input_text", text: "What is it?" },
          { type: "input_image", image_url: picture, detail: "high" },
        ],
      },
      { type: "reasoning", id: "rs_1", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] },
      {
        type: "message",
        id: "msg_1",
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "A square.", annotations: [] }],
      },
      { role: "developer", content: "Name its colour." },
    ],
    max_output_tokens: 9,
    reasoning: { effort: "low", summary: "auto" },
    text: { format: { type: "json_schema", name: "a", schema: { type: "object" }, strict: true }, verbosity: "low" },
    include: ["message.output_text.logprobs"],
    top_logprobs: 2,
    truncation: "disabled",
  });
  await post("/v1/chat/completions", {
    ...shared,
    messages: [
      { role: "system", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "text", text: "What is it?" },
          { type: "image_url", image_url: { url: picture } },
        ],
      },
      { role: "assistant", content: "A square.", reasoning_content: "Hm." },
      // Templates accept a system message only at the start.
      { role: "user", content: "Name its colour." },
    ],
    max_tokens: 9,
    reasoning_effort: "low",
    response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "object" } } },
    logprobs: true,
    top_logprobs: 2,
  });
  const ours = engine.requests.at(0)!;
  const chat = engine.requests.at(1)!;
  expect(ours).toEqual({ ...chat, requestId: ours.requestId });
});

test("calls and their results become turns of the conversation, and tools are flat", async () => {
  const { engine, post } = createTestApp();
  await post(path, {
    input: [
      { role: "user", content: "Compare two cities." },
      { type: "reasoning", summary: [{ type: "summary_text", text: "Two calls." }] },
      { type: "function_call", call_id: "call_1", name: "get_weather", arguments: '{"city":"Oslo"}' },
      { type: "function_call", call_id: "call_2", name: "get_weather", arguments: '{"city":"Rome"}' },
      { type: "function_call_output", call_id: "call_1", output: "4 °C" },
      {
        type: "function_call_output",
        call_id: "call_2",
        output: [
          { type: "input_text", text: "A map:" },
          { type: "input_image", image_url: picture },
        ],
      },
    ],
    tools: [weather],
    tool_choice: "auto",
  });
  await post("/v1/chat/completions", {
    messages: [
      { role: "user", content: "Compare two cities." },
      {
        role: "assistant",
        reasoning_content: "Two calls.",
        tool_calls: [
          { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } },
          { id: "call_2", type: "function", function: { name: "get_weather", arguments: '{"city":"Rome"}' } },
        ],
      },
      { role: "tool", tool_call_id: "call_1", content: "4 °C" },
      {
        role: "tool",
        tool_call_id: "call_2",
        content: [
          { type: "text", text: "A map:" },
          { type: "image_url", image_url: { url: picture } },
        ],
      },
    ],
    tools: [
      {
        type: "function",
        function: {
          name: weather.name,
          description: weather.description,
          parameters: weather.parameters,
          strict: weather.strict,
        },
      },
    ],
    tool_choice: "auto",
  });
  const ours = engine.requests.at(0)!;
  const chat = engine.requests.at(1)!;
  expect(ours).toEqual({ ...chat, requestId: ours.requestId });
  expect(ours.prompt).toMatchObject({ tools: [{ name: "get_weather", strict: true }] });
});

test("instructions and developer messages are one system message, as Codex sends them", async () => {
  const { request } = await respond({
    instructions: "You are a coding agent.",
    input: [
      { type: "message", role: "developer", content: [{ type: "input_text", text: "You may write files." }] },
      { type: "message", role: "user", content: [{ type: "input_text", text: "Hello?" }] },
      { type: "message", role: "developer", content: [{ type: "input_text", text: "You may not write files." }] },
    ],
  });
  expect(request.prompt).toMatchObject({
    messages: [
      { role: "system", content: "You are a coding agent.\n\nYou may write files." },
      { role: "user", content: "Hello?\n\nYou may not write files." },
    ],
  });
});

test("text after a call starts a new turn", async () => {
  const { request } = await respond({
    input: [
      { role: "assistant", content: "Let me look." },
      { type: "function_call", call_id: "1", name: "look", arguments: "{}" },
      { role: "assistant", content: "Wait." },
      { role: "assistant", content: "More." },
    ],
  });
  expect(request.prompt).toMatchObject({
    messages: [
      { role: "assistant", content: "Let me look.", toolCalls: [{ id: "1", name: "look", arguments: {} }] },
      { role: "assistant", content: "Wait." },
      { role: "assistant", content: "More." },
    ],
  });
});

test("an answer that reaches max_output_tokens is incomplete, with the reason", async () => {
  const script = [{ text: "Half an" }, { text: " ans", finishReason: "length" as const }];
  const { answer } = await respond({ input: "Hello?", max_output_tokens: 2 }, { script });
  expect(answer).toMatchObject({
    status: "incomplete",
    incomplete_details: { reason: "max_output_tokens" },
    max_output_tokens: 2,
    output: [{ status: "incomplete", content: [{ text: "Half an ans" }] }],
  });
  const events = await stream({ input: "Hello?" }, { script });
  expect(events.at(-2)!.data).toMatchObject({ type: "response.output_item.done", item: { status: "incomplete" } });
  expect(events.at(-1)!.data).toMatchObject({
    type: "response.incomplete",
    response: { status: "incomplete", incomplete_details: { reason: "max_output_tokens" } },
  });
});

test("an empty answer has a message without text", async () => {
  const { answer } = await respond({ input: "Hello?" }, { script: [""] });
  expect(answer.output).toMatchObject([{ type: "message", content: [{ text: "" }] }]);
});

test("logprobs come with the text that they belong to", async () => {
  const sampled = (token: string) => ({ tokenId: 1, logprob: -0.5, rank: 1, token, bytes: [...Buffer.from(token)] });
  const entry = (token: string) => ({ sampled: sampled(token), top: [sampled(token)] });
  const script = [
    { text: "", logprobs: [entry("\u00e9")] },
    { text: "\u00e9a", logprobs: [entry("a")] },
  ];
  const body = { input: "Hello?", include: ["message.output_text.logprobs"], top_logprobs: 1 };
  const { answer } = await respond(body, { script });
  expect(answer.output.at(0)!.content).toMatchObject([
    { logprobs: [{ token: "\u00e9" }, { token: "a", logprob: -0.5 }] },
  ]);
  const events = await stream(body, { script });
  const deltas = events.filter(({ name }) => name === "response.output_text.delta");
  expect(deltas.map(({ data }) => data["logprobs"])).toMatchObject([[{ token: "\u00e9" }, { token: "a" }]]);
});

describe("a failure", () => {
  test("before the first token has its own status and OpenAI's body", async () => {
    const { post } = createTestApp({ script: [new EngineError("queue_full", "Full.")] });
    for (const isStream of [false, true]) {
      const response = await post(path, { input: "Hello?", stream: isStream });
      expect(response.status).toBe(429);
      expect(await response.json()).toMatchObject({ error: { type: "rate_limit_error", code: "queue_full" } });
    }
  });

  test("in the middle of a stream is response.failed, with the text so far", async () => {
    const events = await stream(
      { input: "Hello?" },
      { script: ["Hel", new EngineError("runtime_failed", "A secret.")] },
    );
    const { type, response } = events.at(-1)!.data as { type: string; response: ResponseAnswer };
    expect([type, response.status, response.error?.code]).toEqual(["response.failed", "failed", "server_error"]);
    expect(response.error?.message).toMatch(/Internal error/);
    expect(response.output).toMatchObject([{ status: "incomplete", content: [{ text: "Hel" }] }]);
  });

  test("after a silence, before the first token, is an error event", async () => {
    const later = Promise.withResolvers<void>();
    const testApp = createTestApp({ script: [later.promise, new EngineError("closed", "Down.")], keepAliveMs: 5 });
    const response = await testApp.post(path, { input: "Hello?", stream: true });
    later.resolve();
    const event = (await readEvents(response)).at(0)!;
    expect(event).toMatchObject({ name: "error", data: { code: "shutting_down", sequence_number: 0 } });
    check("ResponseStreamEvent", event.data);
  });
});

test("tools that are not functions are left out, with a warning", async () => {
  const { answer, response, request, log } = await respond({
    input: "Hello?",
    tools: [{ type: "web_search", filters: { allowed_domains: ["a"] } }, weather, { type: "mcp", server_label: "a" }],
  });
  const warning = response.headers.get("x-fovea-warning");
  expect(warning).toMatch(/does not see these tools: web_search, mcp\./);
  expect(log.at(-1)).toMatchObject({ warnings: warning });
  expect(request.prompt).toMatchObject({ tools: [{ name: "get_weather" }] });
  expect(answer["tools"]).toEqual([weather]);
});

describe("functions in a namespace, as Codex groups the tools of an MCP server", () => {
  const tools = [
    { type: "namespace", name: "mcp__maps", description: "Maps.", tools: [weather, { type: "web_search" }] },
    { ...weather, name: "other" },
  ];
  const call = '<tool_call>\n{"name": "mcp__maps__get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>';
  const called = { type: "function_call", namespace: "mcp__maps", name: "get_weather" };

  test("are one name for the model and two for the client", async () => {
    const { answer, request, response } = await respond({ input: "Hello?", tools }, { script: [call] });
    expect(request.prompt).toMatchObject({ tools: [{ name: "mcp__maps__get_weather" }, { name: "other" }] });
    expect(answer.output).toMatchObject([{ ...called, arguments: '{"city": "Oslo"}' }]);
    expect(response.headers.get("x-fovea-warning")).toMatch(/does not see these tools: web_search\./);
    const events = await stream({ input: "Hello?", tools }, { script: [call] });
    const items = events.filter(({ name }) => /output_item\.(added|done)$/.test(name!));
    expect(items.map(({ data }) => data["item"])).toMatchObject([called, called]);
    expect(events.at(-1)!.data).toMatchObject({ response: { output: [called] } });
  });

  test("keep their name for the model when a call is sent back", async () => {
    const { request } = await respond({
      tools,
      input: [
        { ...called, call_id: "call_1", arguments: '{"city": "Oslo"}' },
        { type: "function_call_output", call_id: "call_1", output: "4 °C" },
      ],
    });
    expect(request.prompt).toMatchObject({
      messages: [{ toolCalls: [{ name: "mcp__maps__get_weather" }] }, { role: "tool", content: "4 °C" }],
    });
  });
});

const said = {
  type: "message",
  role: "assistant",
  content: [{ type: "output_text", text: "A blue", annotations: [] }],
};
const thought = { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "Let me" }] };

test.for<[what: string, items: readonly object[], turn: object]>([
  ["text", [{ ...said, status: "incomplete" }], { content: "A blue" }],
  ["text after thinking", [thought, { ...said, status: "in_progress" }], { content: "A blue", reasoning: "Let me" }],
  ["thinking", [{ ...thought, status: "incomplete" }], { reasoning: "Let me" }],
])("the model continues the last item if it was cut off: %s", async ([, items, turn]) => {
  const { request } = await respond({ input: [{ role: "user", content: "Which?" }, ...items] });
  expect(request.prompt).toMatchObject({
    continueFinalMessage: true,
    addGenerationPrompt: false,
    messages: [{ role: "user" }, { role: "assistant", ...turn }],
  });
});

test.for<[what: string, items: readonly object[]]>([
  ["a complete text", [{ ...said, status: "completed" }]],
  ["a text without a status", [said]],
  ["an empty text", [{ ...said, content: "", status: "incomplete" }]],
  ["a message of the user", [{ role: "user", content: "a", status: "incomplete" }]],
  [
    "a text before another message",
    [
      { ...said, status: "incomplete" },
      { role: "user", content: "Go on." },
    ],
  ],
])("the model continues nothing after %s", async ([, items]) => {
  const { request } = await respond({ input: [{ role: "user", content: "Which?" }, ...items] });
  expect(request.prompt).toMatchObject({ addGenerationPrompt: true });
  expect(request.prompt).not.toHaveProperty("continueFinalMessage");
});

test("allowed_tools narrows the tools that the model sees", async () => {
  const choice = { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "get_weather" }] };
  const { answer, request } = await respond({
    input: "Hello?",
    tools: [{ ...weather, name: "other" }, weather],
    tool_choice: choice,
  });
  expect(request.prompt).toMatchObject({ tools: [{ name: "get_weather" }] });
  expect(answer["tool_choice"]).toEqual(choice);
});

test("allowed_tools may name tools that the model does not see, which are left out", async () => {
  const hosted = [{ type: "web_search" }, { type: "mcp", server_label: "docs" }];
  const tools = [weather, { ...weather, name: "other" }, ...hosted];
  const allowing = (mode: string, ...allowed: object[]) => ({ type: "allowed_tools", mode, tools: allowed });
  const named = { type: "function", name: "get_weather" };
  const { request } = await respond({ input: "a", tools, tool_choice: allowing("required", ...hosted, named) });
  expect(request.prompt).toMatchObject({ tools: [{ name: "get_weather" }] });
  const none = await respond({ input: "a", tools, tool_choice: allowing("auto", ...hosted) });
  expect(none.request.prompt).not.toHaveProperty("tools");
});

test("a client that leaves a stream frees the sequence", async () => {
  const { post, engine, service } = createTestApp({ script: ["a", hang] });
  const response = await post(path, { input: "Hello?", stream: true });
  const reader = response.body!.getReader();
  await reader.read();
  await reader.cancel();
  await expect.poll(() => engine.numAborted).toBe(1);
  expect(service.numRequests).toBe(0);
});

test("fields without an effect are accepted", async () => {
  const { response } = await respond({
    input: "a",
    previous_response_id: null,
    return_token_ids: false,
    background: false,
    conversation: null,
    service_tier: "auto",
    prompt_cache_key: "a",
    prompt_cache_retention: "24h",
    safety_identifier: "a",
    max_tool_calls: 5,
    parallel_tool_calls: true,
    stream_options: null,
    include: ["reasoning.encrypted_content", "web_search_call.action.sources"],
    tools: [],
    tool_choice: "auto",
  });
  expect(response.headers.get("x-fovea-warning")).toBeNull();
});
