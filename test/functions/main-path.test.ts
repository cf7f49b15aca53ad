import { readFile } from "node:fs/promises";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { endless, withLastingAnswers } from "../support/requests/lasting-answers.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

const model = "fovea-shapes";
const numImageTokens = 64;
let service: RunningService;
let client: OpenAI;
let messages: OpenAI.ChatCompletionMessageParam[];

beforeAll(async () => {
  service = await startService({ MAX_NUM_SEQS: "4", ...withLastingAnswers });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  const picture = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
  const url = `data:image/png;base64,${picture.toString("base64")}`;
  const content: OpenAI.ChatCompletionContentPart[] = [
    { type: "image_url", image_url: { url } },
    { type: "text", text: "Describe the picture." },
  ];
  messages = [{ role: "user", content }];
});

afterAll(() => service[Symbol.asyncDispose]());

test("a question about a picture has the same answer whole or streamed, alone or among others", async () => {
  const ask = () => client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24 });
  const alone = await ask();
  const text = alone.choices[0]!.message.content!;
  expect(text).not.toBe("");
  expect(alone.usage!.prompt_tokens).toBeGreaterThan(numImageTokens);
  expect(alone.usage).toMatchObject({
    total_tokens: alone.usage!.prompt_tokens + alone.usage!.completion_tokens,
    prompt_tokens_details: { multimodal_tokens: { image: numImageTokens } },
  });

  const others = await Promise.all(Array.from({ length: 8 }, ask));
  expect(others.map(({ choices }) => choices[0]!.message.content)).toEqual(Array.from({ length: 8 }, () => text));

  const stream = client.chat.completions.stream({
    model,
    messages,
    temperature: 0,
    max_tokens: 24,
    stream_options: { include_usage: true },
  });
  const streamed = await stream.finalChatCompletion();
  expect(streamed.choices[0]!.message.content).toBe(text);
  expect(streamed.choices[0]!.finish_reason).toBe(alone.choices[0]!.finish_reason);
  expect(streamed.usage?.completion_tokens).toBe(alone.usage!.completion_tokens);
});

test("logprobs have a text, its bytes and the alternatives for every token", async () => {
  const answer = await client.chat.completions.create({
    model,
    messages,
    temperature: 0,
    max_tokens: 4,
    logprobs: true,
    top_logprobs: 3,
  });
  const content = answer.choices[0]!.logprobs!.content!;
  expect(content).toHaveLength(answer.usage!.completion_tokens);
  for (const { token, bytes, logprob, top_logprobs: top } of content) {
    expect(Buffer.from(bytes!).toString()).toBe(token);
    expect(top).toHaveLength(3);
    // Greedy: the most likely token is the one taken.
    expect(top[0]).toEqual({ token, bytes, logprob });
  }
});

test("a stop string ends the answer and is named", async () => {
  const whole = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24 });
  const text = whole.choices[0]!.message.content!;
  const stop = text.slice(2, 4);
  const cut = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24, stop });
  expect(cut.choices[0]!.message.content).toBe(text.slice(0, text.indexOf(stop)));
  expect(cut.choices[0]).toMatchObject({ finish_reason: "stop", stop_reason: stop });
});

test("several prompts are completed in one request, with the same text for the same seed", async () => {
  const complete = () =>
    client.completions.create({ model, prompt: ["a red", "a red"], temperature: 1, seed: 7, max_tokens: 8 });
  const [first, second] = [await complete(), await complete()];
  expect(first.choices).toHaveLength(2);
  expect(first.choices[0]!.text).toBe(first.choices[1]!.text);
  expect(second.choices).toEqual(first.choices);
});

test("a client that disconnects frees its place for the next", async () => {
  const controllers = Array.from({ length: 4 }, () => new AbortController());
  const leaving = controllers.map(async ({ signal }) => {
    const body = { model, prompt: "a", stream: true as const, ...endless };
    const stream = await client.completions.create(body, { signal });
    for await (const chunk of stream) expect(chunk.object).toBe("text_completion");
  });
  await expect.poll(() => runningSequences()).toBe(4);
  for (const controller of controllers) controller.abort();
  await Promise.allSettled(leaving);
  const next = await client.completions.create({ model, prompt: "a", max_tokens: 2 });
  expect(next.choices[0]!.finish_reason).toMatch(/stop|length/);
  await expect.poll(() => runningSequences()).toBe(0);
});

async function runningSequences(): Promise<number> {
  const metrics = await (await fetch(`${service.baseUrl}/metrics`)).text();
  return Number(/^vllm:num_requests_running\{[^}]*\} (\d+)$/m.exec(metrics)![1]);
}
