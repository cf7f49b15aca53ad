import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import { CiteFromPrompt } from "../../examples/processors/cite-from-prompt.ts";
import { Dry } from "../../examples/processors/dry.ts";
import { EntropyStop } from "../../examples/processors/entropy-stop.ts";
import { LanguageAllowList } from "../../examples/processors/language-allow-list.ts";
import { SteerLength } from "../../examples/processors/steer-length.ts";
import { testLogitsProcessor } from "../contracts/logits-processor.ts";
import { engineConfig } from "../engine/sampling/create-sampler.ts";
import { startReadyCli } from "../support/service/ready-cli.ts";
import type { ReadyCli } from "../support/service/ready-cli.ts";

const examples = fileURLToPath(new URL("../../examples", import.meta.url));
const shapes = fileURLToPath(new URL("../../models/fovea-shapes", import.meta.url));
const config = { ...engineConfig, model: shapes };

testLogitsProcessor("Dry", {
  create: () => new Dry(config, "cpu", {}),
  using: [
    { extraArgs: { dry_multiplier: 0.8, dry_allowed_length: 1 } },
    { extraArgs: { dry_multiplier: 2, dry_base: 3, dry_sequence_breaker_ids: [5], dry_penalty_last_n: 6 } },
  ],
  notUsing: [{}, { extraArgs: { dry_multiplier: 0 } }],
});

testLogitsProcessor("CiteFromPrompt", {
  create: () => new CiteFromPrompt(config, "cpu", {}),
  using: [{ extraArgs: { cite_min_tokens: 1 } }, { extraArgs: { cite_min_tokens: 3 } }],
});

testLogitsProcessor("EntropyStop", {
  create: () => new EntropyStop(config, "cpu", { endTokenIds: [7, 9] }),
  using: [{ extraArgs: { max_entropy: 0 } }, { extraArgs: { max_entropy: 0.5, entropy_min_tokens: 3 } }],
});

testLogitsProcessor("LanguageAllowList", {
  create: () => new LanguageAllowList(config, "cpu", {}),
  using: [{ extraArgs: { allowed_scripts: ["Greek"] } }, { extraArgs: { allowed_scripts: ["Han", "Latin"] } }],
  notUsing: [{}, { extraArgs: { allowed_scripts: [] } }],
});

testLogitsProcessor("SteerLength", {
  create: () => new SteerLength(config, "cpu", {}),
  using: [{ extraArgs: { length_min: 3 } }, { extraArgs: { length_min: 2, length_max: 5, length_strength: 4 } }],
});

describe("over HTTP", () => {
  const names = ["dry:Dry", "cite-from-prompt:CiteFromPrompt", "entropy-stop:EntropyStop"]
    .concat("language-allow-list:LanguageAllowList", "steer-length:SteerLength")
    .map((name) => `processors.${name}`);
  const prompt = "a large red circle in the top left and a small blue star in the center";
  let service: ReadyCli;
  let client: OpenAI;

  beforeAll(async () => {
    service = await startReadyCli({
      LOGITS_PROCESSORS: names.join(),
      LOGITS_PROCESSOR_PATH: examples,
    });
    client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  });

  afterAll(() => service[Symbol.asyncDispose]());

  async function complete(extraArguments: object, fields: object = {}) {
    const request = { model: "fovea-shapes", prompt, max_tokens: 24, temperature: 0, ...fields };
    const { choices, usage } = await client.completions.create({
      ...request,
      vllm_xargs: extraArguments,
    } as typeof request);
    return { ...choices[0]!, numTokens: usage!.completion_tokens };
  }

  test("DRY keeps a passage from growing", async () => {
    const looping = { logit_bias: { 67: 30 }, ignore_eos: true, logprobs: 0 };
    const runOf = (tokens: readonly string[]) => tokens.findIndex((token) => token !== tokens[0]);
    expect(runOf((await complete({}, looping)).logprobs!.tokens!)).toBe(-1);
    const steered = await complete({ dry_multiplier: 0.8 }, looping);
    expect(runOf(steered.logprobs!.tokens!)).toBeGreaterThan(2);
  });

  test("an answer cites the prompt", async () => {
    const free = await complete({});
    expect(prompt).not.toContain(free.text);
    const { text, finish_reason: reason, numTokens } = await complete({ cite_min_tokens: 4 });
    expect(prompt).toContain(text);
    expect(text).not.toBe("");
    expect(numTokens).toBeGreaterThanOrEqual(4);
    expect(reason).toBe("stop");
  });

  test("a text ends where the model is unsure, and not where the limit is high", async () => {
    const options = { temperature: 1, seed: 1, ignore_eos: false };
    expect(await complete({ max_entropy: 20 }, options)).toEqual(await complete({}, options));
    const { finish_reason: reason, numTokens } = await complete(
      { max_entropy: 0, entropy_min_tokens: 4 },
      {
        ...options,
        logit_bias: { 2: -100 },
      },
    );
    expect([reason, numTokens]).toEqual(["stop", 5]);
  });

  test("a text keeps to the allowed scripts", async () => {
    const free = await complete({});
    expect(free.text).toMatch(/[a-z]/);
    expect(await complete({ allowed_scripts: ["Latin"] })).toEqual(free);
    const { text } = await complete({ allowed_scripts: ["Greek"] }, { ignore_eos: true });
    expect(text).not.toMatch(/\p{Script=Latin}/u);
    expect(text).not.toBe("");
  });

  test("a text has a length between the minimum and the maximum", async () => {
    const lengths = await Promise.all(
      [1, 2, 3, 4].map(async (seed) => {
        const steered = await complete({ length_min: 6, length_max: 9 }, { temperature: 1, seed });
        expect(steered.finish_reason).toBe("stop");
        return steered.numTokens - 1;
      }),
    );
    expect(Math.min(...lengths)).toBeGreaterThanOrEqual(6);
    expect(Math.max(...lengths)).toBeLessThanOrEqual(9);
    expect((await complete({ length_max: 2 })).numTokens).toBeLessThanOrEqual(3);
  });

  test.for([
    [{ dry_multiplier: -1 }, "dry_multiplier must be a number from 0 to 100, got -1."],
    [{ dry_sequence_breaker_ids: 5 }, "dry_sequence_breaker_ids must be a list of token ids, got 5."],
    [{ dry_sequence_breaker_ids: ["a"] }, 'dry_sequence_breaker_ids must be a list of token ids, got ["a"].'],
    [{ dry_sequence_breaker_ids: [1.5] }, "dry_sequence_breaker_ids must be a list of token ids, got [1.5]."],
    [{ cite_min_tokens: "all" }, 'cite_min_tokens must be a number from 1 to 65536, got "all".'],
    [{ max_entropy: 21 }, "max_entropy must be a number from 0 to 20, got 21."],
    [
      { allowed_scripts: ["Klingon"] },
      `allowed_scripts must contain Unicode's names of scripts such as Latin, got "Klingon".`,
    ],
    [{ length_min: 9, length_max: 8 }, "length_min must be at most length_max=8, got 9."],
  ] as const)("%o is rejected", async ([extraArguments, message]) => {
    const refused = complete(extraArguments);
    await expect(refused).rejects.toMatchObject({ status: 400 });
    await expect(refused).rejects.toThrow(message);
  });
});

describe("DRY", () => {
  /** The row after the processor, for logits of 0. */
  function penalised(extraArgs: Record<string, number | number[]>, promptTokenIds: number[], outputTokenIds: number[]) {
    const processor = new Dry(config, "cpu", {});
    const params = createSamplingParams({ extraArgs });
    const added = { index: 0, params, promptTokenIds, outputTokenIds };
    processor.updateState({ batchSize: 1, removed: [], added: [added], moved: [] });
    const data = new Float32Array(10);
    processor.apply({ numRequests: 1, vocabSize: 10, data, row: () => data });
    return Object.fromEntries([...data.entries()].filter(([, logit]) => logit !== 0));
  }

  test("penalises the token that would lengthen a passage by the passage's length", () => {
    // The newest tokens 1 2 3 occur in the prompt, before 4; 2 3 alone also before 5.
    const penalty = (length: number) => -Math.fround(2 * 3 ** (length - 2));
    const args = { dry_multiplier: 2, dry_base: 3 };
    expect(penalised(args, [1, 2, 3, 4, 2, 3, 5], [1, 2, 3])).toEqual({ 4: penalty(3), 5: penalty(2) });
    expect(penalised({ ...args, dry_allowed_length: 3 }, [1, 2, 3, 4, 2, 3, 5], [1, 2, 3])).toEqual({ 4: -2 });
  });

  test("reaches neither across a breaker nor beyond the newest tokens", () => {
    const args = { dry_multiplier: 2, dry_base: 3, dry_sequence_breaker_ids: [2] };
    expect(penalised(args, [1, 2, 3, 4, 2, 3, 5], [1, 2, 3])).toEqual({});
    const short = { dry_multiplier: 2, dry_base: 3, dry_penalty_last_n: 6 };
    expect(penalised(short, [1, 2, 3, 4, 2, 3, 5], [1, 2, 3])).toEqual({ 5: -2 });
  });
});
