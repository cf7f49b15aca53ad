/** Tools with the shipped checkpoint, which has never seen one: grammars alone make its calls valid. */
import { readFile } from "node:fs/promises";
import { Ajv2020 } from "ajv/dist/2020.js";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { biasAgainstWhiteSpace } from "../support/engine/whitespace-bias.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

const model = "fovea-shapes";
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "8" });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(() => service[Symbol.asyncDispose]());

const countParameters = {
  type: "object",
  properties: {
    shape: { enum: ["circle", "square", "triangle"] },
    colour: { type: "string", maxLength: 8 },
    options: {
      type: "object",
      properties: { exact: { type: "boolean" } },
      required: ["exact"],
      additionalProperties: false,
    },
  },
  required: ["shape", "options"],
  additionalProperties: false,
};
const answerParameters = {
  type: "object",
  properties: { number: { type: "integer", minimum: 0, maximum: 20 } },
  required: ["number"],
  additionalProperties: false,
};
const tools: OpenAI.ChatCompletionFunctionTool[] = [
  { type: "function", function: { name: "count_shapes", description: "Counts.", parameters: countParameters } },
  { type: "function", function: { name: "answer", parameters: answerParameters } },
  { type: "function", function: { name: "give-up" } },
];
const ajv = new Ajv2020();
const validators = new Map([
  ["count_shapes", ajv.compile(countParameters)],
  ["answer", ajv.compile(answerParameters)],
  ["give-up", ajv.compile({ type: "object", maxProperties: 0 })],
]);

function expectValid(call: OpenAI.ChatCompletionMessageToolCall): void {
  if (call.type !== "function") throw new Error(`a call of the type ${call.type}`);
  const validate = validators.get(call.function.name);
  expect(validate, call.function.name).toBeDefined();
  expect([call.function.arguments, validate!(JSON.parse(call.function.arguments))]).toEqual([
    call.function.arguments,
    true,
  ]);
}

const body = {
  model,
  messages: [{ role: "user", content: "How many circles?" }],
  tools,
  max_tokens: 200,
  parallel_tool_calls: false,
  logit_bias: biasAgainstWhiteSpace,
} satisfies OpenAI.ChatCompletionCreateParams;

describe.for([
  ["required", "required"],
  ["a named tool", { type: "function", function: { name: "count_shapes" } }],
] as const)("tool_choice %s", ([, choice]) => {
  const isNamed = typeof choice === "object";

  test.for([1, 2, 3, 4, 5, 6])("gives a call whose arguments match the schema, with seed %i", async (seed) => {
    const answer = await client.chat.completions.create({ ...body, tool_choice: choice, seed, temperature: 1.5 });
    const { message, finish_reason: reason } = answer.choices[0]!;
    expect(reason).toBe("tool_calls");
    expect(message.content).toBeNull();
    expect(message.tool_calls).toHaveLength(1);
    const call = message.tool_calls![0]!;
    expect(call.id).toMatch(/^call_[\da-f]{24}$/);
    expectValid(call);
    const names = isNamed ? ["count_shapes"] : [...validators.keys()];
    expect(names).toContain(call.type === "function" ? call.function.name : null);
  });

  test("streams the same call in pieces that OpenAI's client joins, for several choices", async () => {
    const sampled = { ...body, tool_choice: choice, seed: 7, temperature: 1.2, n: 3 };
    const whole = await client.chat.completions.create(sampled);
    const stream = client.chat.completions.stream(sampled);
    const deltas: OpenAI.ChatCompletionChunk.Choice.Delta.ToolCall[] = [];
    stream.on("chunk", (chunk) => {
      const [first] = chunk.choices;
      if (first?.index === 0) deltas.push(...(first.delta.tool_calls ?? []));
    });
    const joined = await stream.finalChatCompletion();
    const callsOf = (completion: OpenAI.ChatCompletion) =>
      completion.choices.map(({ message, finish_reason: reason }) => [
        reason,
        message.tool_calls?.map((call) => {
          expectValid(call);
          return call.type === "function" ? [call.function.name, call.function.arguments] : [];
        }),
      ]);
    expect(callsOf(joined)).toEqual(callsOf(whole));
    expect(new Set(joined.choices.map(({ message }) => message.tool_calls![0]!.id)).size).toBe(3);
    // The id, type and name come once, and arguments in several pieces.
    const [head, ...rest] = deltas;
    expect(head).toMatchObject({
      index: 0,
      id: expect.any(String),
      type: "function",
      function: { name: expect.any(String) },
    });
    expect(rest.every(({ id, type, function: f, index }) => !id && !type && !f?.name && index === 0)).toBe(true);
    expect(rest.length).toBeGreaterThan(isNamed ? 1 : 0);
  });
});

test("parallel calls are all valid, and end where the tokens do", async () => {
  const answer = await client.chat.completions.create({
    ...body,
    tools: tools.slice(1),
    parallel_tool_calls: true,
    tool_choice: "required",
    seed: 3,
    temperature: 1,
    max_tokens: 120,
  });
  const { message, finish_reason: reason } = answer.choices[0]!;
  const calls = message.tool_calls!;
  for (const call of reason === "length" ? calls.slice(0, -1) : calls) expectValid(call);
  expect(calls.length).toBeGreaterThan(0);
});

test("a strict tool leaves the model free to write text, and constrains what follows the tag", async () => {
  const strict = tools.map((tool) => ({ ...tool, function: { ...tool.function, strict: true } }));
  const free = await client.chat.completions.create({ ...body, tools: strict, temperature: 0, max_tokens: 16 });
  const plain = await client.chat.completions.create({ ...body, tools: [], temperature: 0, max_tokens: 16 });
  expect(free.choices[0]!.message.content).toBe(plain.choices[0]!.message.content);
});

test("a schema that cannot be enforced is rejected with its path, whole and streamed", async () => {
  const broken = {
    type: "function",
    function: { name: "broken", parameters: { type: "object", properties: { a: { type: "colour" } } } },
  } as const;
  for (const stream of [false, true]) {
    const error = await client.chat.completions
      .create({ ...body, tools: [...tools, broken], tool_choice: "required", stream })
      .then(
        () => null,
        (thrown: unknown) => thrown as InstanceType<typeof OpenAI.APIError>,
      );
    expect(error).toMatchObject({ status: 400, param: "tools[3].function.parameters" });
    expect(error!.message).toContain("tools[3].function.parameters cannot be enforced");
  }
  // The same schema is only shown to a model that is free to call.
  const free = await client.chat.completions.create({ ...body, tools: [...tools, broken], max_tokens: 4 });
  expect(free.choices[0]!.message.role).toBe("assistant");
});

test("schemas nested a thousand levels deep are rejected", async () => {
  const deep = `${'{"type":"object","properties":{"a":'.repeat(1000)}{}${"}}".repeat(1000)}`;
  const text = JSON.stringify({ ...body, tools: [{ type: "function", function: { name: "f", parameters: 0 } }] });
  const response = await fetch(`${service.baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: text.replace('"parameters":0', `"parameters":${deep}`),
  });
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as { readonly error: { readonly message: string; readonly param: string } };
  expect(error.param).toBe("tools");
  expect(error.message).toMatch(/more than 100 levels/);
});

test("a conversation with calls and results is answered, also where they do not belong together", async () => {
  const call = { id: "call_1", type: "function", function: { name: "answer", arguments: '{"number": 3}' } } as const;
  const user = { role: "user", content: "How many circles?" } as const;
  const conversations: OpenAI.ChatCompletionMessageParam[][] = [
    [user, { role: "assistant", tool_calls: [call] }, { role: "tool", tool_call_id: "call_1", content: "3" }],
    [user, { role: "tool", tool_call_id: "call_9", content: [{ type: "text", text: "3" }] }],
    [user, { role: "assistant", content: null, tool_calls: [call] }, user],
  ];
  for (const messages of conversations) {
    const answer = await client.chat.completions.create({ model, messages, tools, max_tokens: 4 });
    expect(answer.choices[0]!.message.role).toBe("assistant");
  }
});

test("a picture in the result of a call is read", async () => {
  const picture = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  const url = `data:image/png;base64,${picture.toString("base64")}`;
  const call = { id: "call_1", type: "function", function: { name: "look", arguments: "{}" } };
  const messages = [
    { role: "user", content: "Describe the picture." },
    { role: "assistant", tool_calls: [call] },
    { role: "tool", tool_call_id: "call_1", content: [{ type: "image_url", image_url: { url } }] },
  ] as unknown as OpenAI.ChatCompletionMessageParam[];
  const { usage } = await client.chat.completions.create({ model, messages, max_tokens: 4 });
  expect(usage).toMatchObject({ prompt_tokens_details: { multimodal_tokens: { image: 64 } } });
});

test("harmless fields are accepted and ignored", async () => {
  const harmless = {
    store: true,
    metadata: { a: "b" },
    service_tier: "auto",
    safety_identifier: "someone",
    prompt_cache_key: "a",
    prompt_cache_retention: "24h",
    verbosity: "low",
    user: "someone",
    reasoning_effort: "low",
  } as const;
  const ask = (fields: object) =>
    client.chat.completions.create({ model, messages: body.messages, temperature: 0, max_tokens: 8, ...fields });
  const [plain, answer] = [await ask({}), await ask(harmless)];
  expect(answer.choices).toEqual(plain.choices);
});
