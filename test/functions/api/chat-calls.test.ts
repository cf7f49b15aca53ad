/** Choices among tools, forms beside required calls, and the ends of answers with calls. */
import { describe, expect, test } from "vitest";

import { JsonFloat, JsonInteger } from "../../../engine/index.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const names = ["get_weather", "get_time", "get_news"];
const tools = names.map((name) => ({ type: "function", function: { name, parameters } }));
const flatTools = names.map((name) => ({ type: "function", name, parameters }));
const messageTools = names.map((name) => ({ name, input_schema: parameters }));
const outputFormats = thinkingFormats;
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>';

interface ChatAnswer {
  readonly choices: readonly {
    readonly finish_reason: string;
    readonly message: { readonly tool_calls?: readonly { readonly function: object }[] };
  }[];
  readonly usage: { readonly completion_tokens_details?: object };
}

async function chat(body: object, script: Script) {
  const app = createTestApp({ script, config: { outputFormats } });
  const response = await app.post("/v1/chat/completions", { ...chatBody, tools, ...body });
  return { answer: (await response.json()) as ChatAnswer, status: response.status, request: app.engine.requests[0] };
}

const allowing = (mode: string, ...allowed: string[]): object => ({
  tool_choice: {
    type: "allowed_tools",
    allowed_tools: { mode, tools: allowed.map((name) => ({ type: "function", function: { name } })) },
  },
});

describe("allowed_tools", () => {
  test("shows the model only these tools, and leaves it free to answer in text", async () => {
    const { request, status } = await chat(allowing("auto", "get_news", "get_weather"), ["Hello."]);
    expect(status).toBe(200);
    const shown = request?.prompt.kind === "chat" ? request.prompt.tools : null;
    expect(shown?.map(({ name }) => name)).toEqual(["get_weather", "get_news"]);
    expect(request?.samplingParams.structuredOutput).toBeNull();
  });

  test("with the mode required, enforces a call of one of them", async () => {
    const { request, answer } = await chat(allowing("required", "get_weather"), [call]);
    const form = JSON.stringify(request?.samplingParams.structuredOutput);
    expect(form).toContain("get_weather");
    expect(form).not.toMatch(/get_time|get_news/);
    expect(answer.choices[0]?.finish_reason).toBe("tool_calls");
  });
});

describe("a call of a tool that the model invents", () => {
  const invented = '<tool_call>\n{"name": "functions.get weather", "arguments": {"city": "Oslo"}}\n</tool_call>';
  const error = "There is no such tool.";

  interface InventedAnswer {
    readonly choices: readonly [{ readonly message: { readonly tool_calls: readonly [{ readonly id: string }] } }];
    readonly output: readonly [{ readonly call_id: string }];
    readonly content: readonly [{ readonly id: string }];
  }

  test.for<[path: string, body: object, next: (answer: InventedAnswer) => object]>([
    [
      "/v1/chat/completions",
      { ...chatBody, tools },
      ({ choices: [{ message }] }) => ({
        messages: [
          ...chatBody.messages,
          message,
          { role: "tool", tool_call_id: message.tool_calls[0].id, content: error },
        ],
        tools,
      }),
    ],
    [
      "/v1/responses",
      { input: "Hello?", tools: flatTools },
      ({ output }) => ({
        input: [...output, { type: "function_call_output", call_id: output[0].call_id, output: error }],
        tools: flatTools,
      }),
    ],
    [
      "/v1/messages",
      { max_tokens: 99, messages: chatBody.messages, tools: messageTools },
      ({ content }) => ({
        max_tokens: 99,
        messages: [
          ...chatBody.messages,
          { role: "assistant", content },
          { role: "user", content: [{ type: "tool_result", tool_use_id: content[0].id, content: error }] },
        ],
        tools: messageTools,
      }),
    ],
  ])("can be sent back to %s, with an error as its result", async ([path, body, next]) => {
    const app = createTestApp({ script: [invented], config: { outputFormats } });
    const answer = (await (await app.post(path, body)).json()) as InventedAnswer;
    const response = await app.post(path, next(answer));
    expect([response.status, await response.text()]).toEqual([200, expect.any(String)]);
    expect(app.engine.requests.at(1)!.prompt).toMatchObject({
      messages: expect.arrayContaining([
        expect.objectContaining({
          toolCalls: [{ id: expect.any(String), name: "functions.get weather", arguments: { city: "Oslo" } }],
        }),
      ]),
    });
  });
});

test.for([
  ["short", 1],
  ["parsed on a thread", 1_100_000],
] as const)(
  "inputs of calls sent to /v1/messages keep their digits and floats in a body that is %s",
  async ([, length]) => {
    const app = createTestApp({ config: { maxBodyBytes: 4_000_000 } });
    const input = {
      id: JSON.rawJSON("9007199254740993"),
      all: [JSON.rawJSON("-12345678901234567890"), { price: JSON.rawJSON("10.0") }],
      count: 2,
      "\0number": "5",
    };
    const call = { type: "tool_use", id: "1", name: "buy", input };
    const body = {
      max_tokens: 1,
      messages: [
        { role: "user", content: "a".repeat(length) },
        { role: "assistant", content: [{ type: "text", text: "9007199254740993" }, call] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: "Bought." }] },
      ],
    };
    expect((await app.post("/v1/messages", body)).status).toBe(200);
    const all = [new JsonInteger(-12345678901234567890n), { price: new JsonFloat(10) }];
    const given = { id: new JsonInteger(9007199254740993n), all, count: 2, "\0number": "5" };
    expect(app.engine.requests.at(0)!.prompt).toMatchObject({
      messages: expect.arrayContaining([
        expect.objectContaining({ toolCalls: [{ id: "1", name: "buy", arguments: given }] }),
      ]),
    });
  },
);

test.for([
  [
    "/v1/chat/completions",
    {
      messages: [
        { role: "user", content: "Buy it." },
        {
          role: "assistant",
          tool_calls: [
            { id: "1", type: "function", function: { name: "buy", arguments: '{"price": 10.0, "count": 2}' } },
          ],
        },
        { role: "tool", tool_call_id: "1", content: "Bought." },
      ],
    },
  ],
  [
    "/v1/responses",
    {
      input: [
        { role: "user", content: "Buy it." },
        { type: "function_call", call_id: "1", name: "buy", arguments: '{"price": 10.0, "count": 2}' },
        { type: "function_call_output", call_id: "1", output: "Bought." },
      ],
    },
  ],
] as const)("arguments of calls sent to %s keep their floats", async ([path, body]) => {
  const app = createTestApp();
  expect((await app.post(path, body)).status).toBe(200);
  expect(app.engine.requests.at(0)!.prompt).toMatchObject({
    messages: expect.arrayContaining([
      expect.objectContaining({
        toolCalls: [{ id: "1", name: "buy", arguments: { price: new JsonFloat(10), count: 2 } }],
      }),
    ]),
  });
});

test("the input of a tool_use block has integers with all their digits", async () => {
  const text = '<tool_call>{"name": "get_weather", "arguments": {"id": 175928847299117063, "days": 2}}</tool_call>';
  const app = createTestApp({ script: [text], config: { outputFormats } });
  const messages = [{ role: "user", content: "Hello?" }];
  const answer = await app.post("/v1/messages", { max_tokens: 99, messages, tools: messageTools });
  expect(await answer.text()).toContain('"input":{"id":175928847299117063,"days":2}');
});

/** Agents send the form of the final answer with every turn. */
describe.for([
  [
    "/v1/chat/completions",
    {
      ...chatBody,
      tools,
      tool_choice: "required",
      response_format: { type: "json_schema", json_schema: { name: "answer", schema: { type: "object" } } },
    },
  ],
  [
    "/v1/responses",
    {
      input: "Hello?",
      tools: flatTools,
      tool_choice: "required",
      text: { format: { type: "json_schema", name: "answer", schema: { type: "object" } } },
    },
  ],
  [
    "/v1/messages",
    {
      max_tokens: 99,
      messages: chatBody.messages,
      tools: messageTools,
      tool_choice: { type: "any" },
      output_config: { format: { type: "json_schema", schema: { type: "object" } } },
    },
  ],
] as const)("%s", ([path, body]) => {
  test("requires a call also beside a form of the answer in text", async () => {
    const app = createTestApp({ script: [call], config: { outputFormats } });
    const response = await app.post(path, body);
    expect([response.status, await response.text()]).toEqual([200, expect.stringContaining("get_weather")]);
    const form = app.engine.requests[0]!.samplingParams.structuredOutput;
    const alone = createTestApp({ script: [call], config: { outputFormats } });
    const { response_format: _, text: __, output_config: ___, ...required } = body as Record<string, unknown>;
    await alone.post(path, required);
    expect(form).not.toBeNull();
    expect(form).toEqual(alone.engine.requests[0]!.samplingParams.structuredOutput);
  });
});

describe("a stop string", () => {
  const cut: Script = [call.slice(0, 60), { text: "", finishReason: "stop", stopReason: "Oslo" }];

  test("within a call ends the answer as a stop, so that no client runs the call", async () => {
    const { answer } = await chat({ stop: ["Oslo"] }, cut);
    expect(answer.choices[0]).toMatchObject({ finish_reason: "stop", message: { tool_calls: [{}] } });
    const app = createTestApp({ script: cut, config: { outputFormats } });
    const fields = { max_tokens: 99, messages: chatBody.messages, tools: messageTools, stop_sequences: ["Oslo"] };
    const message: unknown = await (await app.post("/v1/messages", fields)).json();
    expect(message).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: "Oslo" });
  });

  test("after a call leaves the call to the client", async () => {
    const { answer } = await chat({ stop: ["!"] }, [call, { text: "", finishReason: "stop", stopReason: "!" }]);
    expect(answer.choices[0]?.finish_reason).toBe("tool_calls");
  });
});

describe("usage counts the tokens of thinking", () => {
  const script: Script = [
    { text: "<think>", reasoningStart: "before" },
    { text: "Two ", tokenIds: [1, 2] },
    "cities.",
    "</think>",
    "\n\n",
    call,
  ];

  test.for([true, false])("with include_reasoning: %s", async (isIncluded) => {
    const { answer } = await chat({ include_reasoning: isIncluded }, script);
    const counted = { reasoning_tokens: answer.usage.completion_tokens_details };
    expect(counted.reasoning_tokens).toEqual({ reasoning_tokens: expect.any(Number) });
    const app = createTestApp({ script, config: { outputFormats } });
    const options = { include_usage: true, continuous_usage_stats: true };
    const fields = { ...chatBody, tools, include_reasoning: isIncluded, stream: true, stream_options: options };
    const stream = await (await app.post("/v1/chat/completions", fields)).text();
    const last = stream.split("\n\n").findLast((event) => event.startsWith("data: {"));
    expect(JSON.parse(last!.slice("data: ".length))).toMatchObject({
      usage: { completion_tokens_details: answer.usage.completion_tokens_details },
    });
    // As Responses count them.
    const responses = createTestApp({ script, config: { outputFormats } });
    const response: unknown = await (
      await responses.post("/v1/responses", { input: "Hello?", tools: flatTools })
    ).json();
    expect(response).toMatchObject({ usage: { output_tokens_details: answer.usage.completion_tokens_details } });
  });

  test("and an answer without thinking has no such count", async () => {
    const { answer } = await chat({}, ["Hello."]);
    expect(answer.usage).not.toHaveProperty("completion_tokens_details");
  });
});
