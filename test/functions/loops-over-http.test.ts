/** Repeated n-grams and loops over HTTP: chat, completions, streams and batches. */
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const model = "fovea-shapes";
const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Is there a red circle?" }];
/** The model loops between these tokens: first its own choice of them, then the same again and again. */
const looping = { temperature: 0, max_tokens: 24, ignore_eos: true, logit_bias: { 67: 100, 68: 100 } };
const repetition_detection = { max_pattern_size: 4, min_pattern_size: 1, min_count: 3 };
const ending = { finish_reason: "repetition", stop_reason: "repetition_detected" };

let folder: TemporaryFolder;
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({
    BATCH_STORE: folder.path,
    LOGITS_PROCESSOR_DEFAULT_ARGS: '{"whitelist_token_ids": []}',
  });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

/** With fields that the client's types do not have. */
function chat(fields: object): Promise<OpenAI.ChatCompletion> {
  return client.chat.completions.create({ model, messages, ...looping, ...fields });
}

function complete(fields: object): Promise<OpenAI.Completion> {
  return client.completions.create({ model, prompt: "a red circle", ...looping, ...fields });
}

describe("repetition_detection", () => {
  test("ends a looping answer with a reason of its own, in chat and completions", async () => {
    expect((await chat({})).choices[0]).toMatchObject({ finish_reason: "length" });
    const answer = await chat({ repetition_detection });
    expect(answer.choices[0]).toMatchObject(ending);
    expect(answer.usage!.completion_tokens).toBeLessThan(24);
    expect(answer.choices[0]!.message.content).not.toBe("");
    const completion = await complete({ repetition_detection });
    expect(completion.choices[0]).toMatchObject(ending);
    expect(completion.usage!.completion_tokens).toBeLessThan(24);
  });

  test("ends a stream with the same reason", async () => {
    const request = { model, messages, ...looping, repetition_detection, stream: true } as const;
    const stream = await client.chat.completions.create(request);
    const choices = [];
    for await (const { choices: delta } of stream) choices.push(...delta);
    expect(choices.at(-1)).toMatchObject(ending);
    expect(choices.filter(({ finish_reason: reason }) => reason !== null)).toHaveLength(1);
  });

  test("does not end a shorter loop", async () => {
    const answer = await chat({ repetition_detection: { ...repetition_detection, min_count: 25 } });
    expect(answer.choices[0]).toMatchObject({ finish_reason: "length" });
  });

  test("counts in the metrics under its own reason", async () => {
    await chat({ repetition_detection });
    const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
    expect(text).toMatch(/vllm:request_success_total\{[^}]*finished_reason="repetition"[^}]*\} [1-9]/);
  });

  test.for([
    [
      { max_pattern_size: 3, min_count: 1 },
      "min_count",
      "repetition_detection.min_count must be a whole number from 2 to 1024, got 1.",
    ],
    [
      { max_pattern_size: 9999, min_count: 2 },
      "max_pattern_size",
      "repetition_detection.max_pattern_size must be a whole number from 0 to 2048, got 9999.",
    ],
    [
      { max_pattern_size: 2, min_pattern_size: 3, min_count: 2 },
      "min_pattern_size",
      "repetition_detection.min_pattern_size must be at most max_pattern_size=2, got 3.",
    ],
    [{ max_pattern_size: -1 }, "max_pattern_size", "max_pattern_size must be at least 0"],
  ] as const)("of %o is rejected", async ([fields, field, message]) => {
    const error: unknown = await chat({ repetition_detection: fields }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ status: 400, param: `repetition_detection.${field}` });
    expect((error as Error).message).toContain(message);
  });
});

describe("no_repeat_ngram", () => {
  /** Pairs of neighbouring tokens that occur more than once. */
  async function repeatedPairs(fields: object): Promise<string[]> {
    const { choices } = await complete({ ...fields, logprobs: 0 });
    const tokens = choices[0]!.logprobs!.tokens!;
    const pairs = tokens.slice(1).map((token, index) => JSON.stringify([tokens[index], token]));
    return pairs.filter((pair, index) => pairs.indexOf(pair) !== index);
  }

  test.for(["ngram_size", "no_repeat_ngram_size"])("by %s keeps an answer from repeating itself", async (name) => {
    expect(await repeatedPairs({})).not.toEqual([]);
    expect(await repeatedPairs({ vllm_xargs: { [name]: 2 } })).toEqual([]);
    expect(await repeatedPairs({ vllm_xargs: { [name]: 2 }, temperature: 1, seed: 1 })).toEqual([]);
  });

  test("keeps to the window and the whitelist of the request", async () => {
    expect(await repeatedPairs({ vllm_xargs: { ngram_size: 2, window_size: 2 } })).not.toEqual([]);
    const whitelist = { ngram_size: 2, whitelist_token_ids: [67, 68] };
    expect(await repeatedPairs({ vllm_xargs: whitelist })).not.toEqual([]);
  });

  test("with a wrong argument is rejected by its path", async () => {
    const refused = complete({ vllm_xargs: { ngram_size: 0.5 } });
    await expect(refused).rejects.toMatchObject({ status: 400, param: "vllm_xargs.ngram_size" });
    await expect(refused).rejects.toThrow("ngram_size must be a whole number from 0 to 1024, got 0.5.");
  });

  test("with a wrong default ends the start", async () => {
    const start = startService({ LOGITS_PROCESSOR_DEFAULT_ARGS: '{"ngram_size": -2}' });
    await expect(start).rejects.toThrow(
      "LOGITS_PROCESSOR_DEFAULT_ARGS: ngram_size must be a whole number from 0 to 1024, got -2.",
    );
  });
});

test("lines of a batch take both", async () => {
  const lines = [
    { custom_id: "loop", body: { repetition_detection } },
    { custom_id: "pairs", extra_args: { ngram_size: 2 }, body: { repetition_detection } },
  ].map(({ body, ...line }) => {
    const request = { method: "POST", url: "/v1/chat/completions", body: { model, messages, ...looping, ...body } };
    return JSON.stringify({ ...line, ...request });
  });
  const file = await client.files.create({ file: new File([lines.join("\n")], "lines.jsonl"), purpose: "batch" });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  await expect.poll(async () => (await client.batches.retrieve(id)).status, { timeout: 60_000 }).toBe("completed");
  const { output_file_id: outputFileId } = await client.batches.retrieve(id);
  const results = (await (await client.files.content(outputFileId!)).text()).trimEnd().split("\n");
  const reasons = results.map((text) => {
    const { custom_id: customId, response } = JSON.parse(text) as {
      custom_id: string;
      response: { body: OpenAI.ChatCompletion };
    };
    return [customId, response.body.choices[0]!.finish_reason];
  });
  expect(Object.fromEntries(reasons)).toEqual({ loop: "repetition", pairs: "length" });
});
