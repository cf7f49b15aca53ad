/** Thinking with the shipped checkpoint, which does not think: a budget ends what counts as its thinking. */
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { biasAgainstWhiteSpace } from "../support/engine/whitespace-bias.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

const model = "fovea-shapes";
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "8", REASONING_PARSER: "deepseek_r1" });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(() => service[Symbol.asyncDispose]());

interface Message {
  readonly content: string | null;
  readonly reasoning_content?: string;
  readonly reasoning?: string;
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[];
}

const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "How many circles?" }];
const body = { model, messages, max_tokens: 120, logit_bias: biasAgainstWhiteSpace };
const ask = (fields: object) => client.chat.completions.create({ ...body, ...fields, stream: false });
const messageOf = (answer: OpenAI.ChatCompletion): Message => answer.choices[0]!.message as unknown as Message;

async function streamed(fields: object): Promise<Message[]> {
  const stream = await client.chat.completions.create({ ...body, ...fields, stream: true });
  const messages: { content: string; reasoning_content: string; reasoning: string }[] = [];
  for await (const { choices } of stream) {
    for (const { index, delta } of choices) {
      const message = (messages[index] ??= { content: "", reasoning_content: "", reasoning: "" });
      const { content, reasoning_content: thinking, reasoning } = delta as unknown as Partial<Message>;
      message.content += content ?? "";
      message.reasoning_content += thinking ?? "";
      message.reasoning += reasoning ?? "";
    }
  }
  return messages;
}

const schema = {
  type: "object",
  properties: { count: { type: "integer", minimum: 0, maximum: 9 } },
  required: ["count"],
  additionalProperties: false,
};
const format = { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } };

test.for([0, 1, 6])("a budget of %i tokens ends the thinking, and a schema constrains the rest", async (budget) => {
  const answer = await ask({ ...format, thinking_token_budget: budget, seed: 5, temperature: 1 });
  const { content, reasoning_content: thinking = "", reasoning = "" } = messageOf(answer);
  expect(reasoning).toBe(thinking);
  expect(thinking === "").toBe(budget === 0);
  expect(thinking).not.toContain("think>");
  expect(JSON.parse(content!)).toEqual({ count: expect.any(Number) });
});

test("a budget counts the tokens of the thinking", async () => {
  const fields = { seed: 5, temperature: 1.5, logprobs: true, max_tokens: 60, ignore_eos: true };
  const tokens = (answer: OpenAI.ChatCompletion) => answer.choices[0]!.logprobs!.content!.map(({ token }) => token);
  for (const budget of [1, 2, 9]) {
    const all = tokens(await ask({ ...fields, thinking_token_budget: budget }));
    expect(all.slice(budget).join("")).toMatch(/^<\/think>/);
  }
});

test("a budget of -1 is no limit", async () => {
  const fields = { seed: 5, temperature: 1.5, max_tokens: 20, ignore_eos: true };
  const unlimited = await ask({ ...fields, thinking_token_budget: -1 });
  expect(messageOf(unlimited)).toEqual(messageOf(await ask(fields)));
});

test("the thinking and the answer are streamed apart, for several choices", async () => {
  const fields = { ...format, thinking_token_budget: 8, seed: 2, temperature: 1, n: 3 };
  const whole = await ask(fields);
  const messages = await streamed(fields);
  expect(messages.map(({ content }) => content)).toEqual(whole.choices.map(({ message }) => message.content));
  expect(messages.map(({ reasoning }) => reasoning)).toEqual(
    whole.choices.map(({ message }) => (message as unknown as Message).reasoning ?? ""),
  );
  expect(messages.map(({ reasoning_content: thinking }) => thinking)).toEqual(
    messages.map(({ reasoning }) => reasoning),
  );
});

test("include_reasoning: false leaves the thinking out", async () => {
  const fields = { ...format, thinking_token_budget: 8, seed: 2, temperature: 1 };
  const message = messageOf(await ask({ ...fields, include_reasoning: false }));
  expect(message).not.toHaveProperty("reasoning");
  expect(message).not.toHaveProperty("reasoning_content");
  expect(message.content).toBe(messageOf(await ask(fields)).content);
});

test("a required call follows the thinking", async () => {
  const tools = [{ type: "function", function: { name: "answer", parameters: schema } }];
  const fields = { tools, tool_choice: "required", parallel_tool_calls: false, thinking_token_budget: 4 };
  const message = messageOf(await ask({ ...fields, seed: 1, temperature: 1 }));
  expect(message.content).toBeNull();
  expect(message.tool_calls).toHaveLength(1);
  expect(JSON.parse(message.tool_calls![0]!.function.arguments)).toEqual({ count: expect.any(Number) });
});

test("a continued text is an answer, also of a model whose output starts with thinking", async () => {
  const begun = [...messages, { role: "assistant", content: "There are" }];
  const { content, reasoning } = messageOf(
    await ask({ messages: begun, continue_final_message: true, temperature: 0 }),
  );
  expect(reasoning).toBeUndefined();
  expect(content).not.toBe("");
});

test("thinking is continued, as far as its budget goes", async () => {
  const template =
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>" +
    "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
  await using thinking = await startService({ REASONING_PARSER: "qwen3", CHAT_TEMPLATE: template });
  const other = new OpenAI({ baseURL: `${thinking.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const turn = { role: "assistant", content: null, reasoning_content: "A large red" };
  const continued = { messages: [...messages, turn], continue_final_message: true, thinking_token_budget: 3 };
  const answer = await other.chat.completions.create({
    ...body,
    ...format,
    ...continued,
    logit_bias: {},
    temperature: 0,
  } as never);
  const { content, reasoning = "" } = messageOf(answer);
  // White space at its start belongs to the text that is continued.
  expect(reasoning).toMatch(/^ \w+/);
  expect(JSON.parse(content!)).toEqual({ count: expect.any(Number) });
});

test("thinking that the chat template leaves out cannot be continued", async () => {
  const turn = { role: "assistant", content: null, reasoning_content: "A large red" };
  await expect(ask({ messages: [...messages, turn], continue_final_message: true })).rejects.toMatchObject({
    status: 400,
    message: expect.stringMatching(/leaves out the thinking of the final message/),
  });
});
