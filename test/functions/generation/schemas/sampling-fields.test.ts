/** Decoding fields on the whole service, with the shipped checkpoint. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../../../support/service/running-service.ts";
import type { RunningService } from "../../../support/service/running-service.ts";

const processors = join(import.meta.dirname, "../../../../examples");
let service: RunningService;
let messages: unknown;

beforeAll(async () => {
  service = await startService({
    MAX_NUM_SEQS: "8",
    LOGITS_PROCESSOR_PATH: processors,
    LOGITS_PROCESSORS: "steering.target-token:TargetToken",
    LOGITS_PROCESSOR_DEFAULT_ARGS: '{"unknown": 5}',
  });
  const picture = await readFile(new URL("../../../../models/fovea-shapes/examples/scene.png", import.meta.url));
  const url = `data:image/png;base64,${picture.toString("base64")}`;
  const content = [
    { type: "image_url", image_url: { url } },
    { type: "text", text: "Describe the picture." },
  ];
  messages = [{ role: "user", content }];
});

afterAll(() => service[Symbol.asyncDispose]());

interface Logprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly (number | null)[];
  readonly text_offset: readonly number[];
}

interface Choice {
  readonly index: number;
  readonly text: string;
  readonly message: { readonly content: string };
  readonly finish_reason: string;
  readonly logprobs: Logprobs | null;
  readonly prompt_logprobs: readonly (Readonly<Record<string, { readonly rank: number }>> | null)[];
}

interface Answer {
  readonly status: number;
  readonly choices: readonly Choice[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly error: { readonly message: string; readonly param: string; readonly code: string };
  readonly prompt_logprobs: Choice["prompt_logprobs"];
}

async function post(path: string, body: object): Promise<Answer> {
  const response = await fetch(`${service.baseUrl}/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { ...((await response.json()) as Omit<Answer, "status">), status: response.status };
}

const chat = (fields: object) => post("chat/completions", { messages, temperature: 0, max_tokens: 16, ...fields });
const complete = (fields: object) => post("completions", { prompt: "a red", temperature: 0, max_tokens: 6, ...fields });
const textsOf = ({ choices }: Answer): string[] => choices.map((choice) => choice.message.content);

test("several choices of a question about a picture are those of its seeds, and the picture counts once", async () => {
  // No token is likely, so that draws differ.
  const sampled = { temperature: 2, seed: 5, allowed_token_ids: Array.from({ length: 100 }, (_, index) => 60 + index) };
  const answer = await chat({ ...sampled, n: 3 });
  const alone = await Promise.all([5, 6, 7].map((seed) => chat({ ...sampled, seed })));
  expect(textsOf(answer)).toEqual(alone.flatMap(textsOf));
  expect(new Set(textsOf(answer)).size).toBeGreaterThan(1);
  expect(answer.usage.prompt_tokens).toBe(alone[0]!.usage.prompt_tokens);
  expect(answer.usage.completion_tokens).toBe(alone.reduce((sum, { usage }) => sum + usage.completion_tokens, 0));
});

test("a stream of several choices delivers each in full, and a client that disconnects ends them all", async () => {
  const client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const sampled = { prompt: "a red", model: "fovea-shapes", temperature: 2, seed: 3, n: 3, max_tokens: 8 };
  const whole = await client.completions.create(sampled);
  const texts = ["", "", ""];
  for await (const { choices } of await client.completions.create({ ...sampled, stream: true })) {
    for (const { index, text } of choices) texts[index] += text;
  }
  expect(texts).toEqual(whole.choices.map(({ text }) => text));

  const endless = { ...sampled, max_tokens: 1e9, ignore_eos: true, stream: true } as const;
  for await (const { choices } of await client.completions.create(endless)) if (choices[0]!.index === 2) break;
  await expect
    .poll(async () => (await fetch(`${service.baseUrl}/metrics`)).text())
    .toMatch(/requests_running\{.*\} 0$/m);
});

test.for<[object, string, RegExp]>([
  [{ n: 2 }, "n", /^n must be 1 when using greedy sampling, got 2\.$/],
  [{ n: 0 }, "n", /^n must be at least 1, got 0\.$/],
  [
    { n: 1000, temperature: 1 },
    "n",
    /^n must be at most 264, .*, got 1000\. MAX_NUM_SEQS and MAX_NUM_WAITING set the limit\.$/,
  ],
  [{ logit_bias: { 99999: 1 } }, "logit_bias", /out-of-vocab token ids\. Vocabulary size: 598\.$/],
  [{ allowed_token_ids: [1, 99999] }, "allowed_token_ids", /\[99999\].* Vocabulary size: 598\.$/],
  [{ response_format: { type: "json_schema", json_schema: { schema: { type: "no" } } } }, "response_format", /./],
  [{ structured_outputs: { regex: "(" } }, "structured_outputs", /./],
  [{ structured_outputs: { choice: [] } }, "structured_outputs", /choice cannot be an empty list/],
  [{ vllm_xargs: { target_token: "red" } }, "vllm_xargs", /^target_token must be a token id, got "red"\.$/],
])("%j is rejected before it reaches the engine, at %s", async ([fields, param, message]) => {
  const { status, error } = await chat(fields);
  expect({ status, param: error.param }).toEqual({ status: 400, param });
  expect(error.message).toMatch(message);
});

test("more prompts than can ever run or wait together are rejected, and as many as can are answered", async () => {
  const ask = (numPrompts: number, n: number): Promise<Response> =>
    fetch(`${service.baseUrl}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: Array.from({ length: numPrompts }, () => "A"), n, temperature: 1, max_tokens: 1 }),
    });
  for (const [numPrompts, n] of [
    [265, 1],
    [133, 2],
  ]) {
    const refused = await ask(numPrompts!, n!);
    expect(refused.status).toBe(400);
    const { error } = (await refused.json()) as { error: { message: string; param: string } };
    expect(error.param).toBe("prompt");
    expect(error.message).toBe(
      `prompt asks for ${numPrompts! * n!} choices in ${numPrompts} prompts; at most 264 can run or wait at once. MAX_NUM_SEQS and MAX_NUM_WAITING set the limit.`,
    );
  }
  const answered = await ask(132, 2);
  expect(((await answered.json()) as { choices: unknown[] }).choices).toHaveLength(264);
});

test("biases, allowed tokens and penalties change the generated text", async () => {
  const wanted = 67;
  const forced = await complete({ vllm_xargs: { target_token: wanted }, ignore_eos: true });
  const token = forced.choices[0]!.text.slice(0, forced.choices[0]!.text.length / 6);
  const always = { ignore_eos: true, max_tokens: 6 };
  expect((await complete({ ...always, logit_bias: { [wanted]: 100 } })).choices[0]!.text).toBe(token.repeat(6));
  expect((await complete({ ...always, allowed_token_ids: [wanted] })).choices[0]!.text).toBe(token.repeat(6));
  const penalised = { ...always, allowed_token_ids: [wanted, wanted + 1], logit_bias: { [wanted]: 1 } };
  const free = (await complete(penalised)).choices[0]!.text;
  expect((await complete({ ...penalised, frequency_penalty: 2, presence_penalty: 2 })).choices[0]!.text).not.toBe(free);
});

test("structured output determines the form of the text", async () => {
  const choice = ["a purple cat", "a golden dog"];
  const chosen = await chat({ structured_outputs: { choice } });
  expect(choice).toContain(chosen.choices[0]!.message.content);
  const matched = await chat({ structured_outputs: { regex: "[0-9]{3}-[0-9]{2}" } });
  expect(matched.choices[0]!.message.content).toMatch(/^[0-9]{3}-[0-9]{2}$/);
  const schema = { enum: ["red", "blue"] };
  const response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  const text = (await chat({ response_format })).choices[0]!.message.content;
  expect(schema.enum).toContain(JSON.parse(text));
});

test("an echo starts with the prompt, and its logprobs with the prompt's", async () => {
  const echoed = await complete({ echo: true, logprobs: 0 });
  const { text, logprobs } = echoed.choices[0]!;
  const generated = (await complete({ logprobs: 0 })).choices[0]!;
  expect(text).toBe(`a red${generated.text}`);
  const { prompt_tokens, completion_tokens } = echoed.usage;
  expect(logprobs?.tokens).toHaveLength(prompt_tokens + completion_tokens);
  expect(logprobs?.token_logprobs[0]).toBeNull();
  expect(logprobs?.token_logprobs.slice(1).every((logprob) => logprob! <= 0)).toBe(true);
  expect(logprobs?.tokens.slice(prompt_tokens)).toEqual(generated.logprobs?.tokens);

  const promptOnly = await complete({ echo: true, max_tokens: 0 });
  expect(promptOnly).toMatchObject({
    choices: [{ text: "a red", finish_reason: "length" }],
    usage: { completion_tokens: 0 },
  });
});

test("prompt logprobs have an entry for every token of a prompt, also those of its picture", async () => {
  const { prompt_logprobs: promptLogprobs, usage } = await chat({ prompt_logprobs: 2, max_tokens: 1 });
  expect(promptLogprobs).toHaveLength(usage.prompt_tokens);
  expect(promptLogprobs[0]).toBeNull();
  for (const entry of promptLogprobs.slice(1)) {
    expect(Object.values(entry!).map(({ rank }) => rank)).toEqual(expect.arrayContaining([1, 2]));
  }
});

test("a processor that fails ends only its own request, and is named", async () => {
  const [failed, steered, free] = await Promise.all([
    chat({ vllm_xargs: { target_token: 99999 } }),
    complete({ vllm_xargs: { target_token: 67 }, ignore_eos: true }),
    chat({}),
  ]);
  expect(failed.status).toBe(500);
  expect(failed.error).toMatchObject({
    code: "logits_processor_failed",
    message: "The logits processor steering.target-token:TargetToken failed: target_token is 99999, of 598 tokens",
  });
  expect(steered.choices[0]!.text).toBe(
    (await complete({ vllm_xargs: { target_token: 67 }, ignore_eos: true })).choices[0]!.text,
  );
  expect(textsOf(free)).toEqual(textsOf(await chat({})));
});
