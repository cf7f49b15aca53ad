import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { NgramIndex } from "../../../../engine/sampling/built-in/ngram-index.ts";
import { NoRepeatNgramLogitsProcessor } from "../../../../engine/sampling/built-in/no-repeat-ngram.ts";
import { StepLogits } from "../../../../engine/sampling/step-logits.ts";
import { engineConfig } from "../create-sampler.ts";

type ExtraArgs = Readonly<Record<string, number | readonly number[]>>;

/** The ids that a request with this output must not get next. Grows with `append`, like a request that decodes. */
function createRow(extraArgs: ExtraArgs, vocabSize: number) {
  const processor = new NoRepeatNgramLogitsProcessor(engineConfig);
  const outputTokenIds: number[] = [];
  const params = createSamplingParams({ extraArgs });
  const added = { index: 0, params, promptTokenIds: [], outputTokenIds, badWordsTokenIds: [], grammar: null };
  processor.updateState({ batchSize: 1, removed: [], added: [added], moved: [] });
  const logits = new StepLogits(1, vocabSize);
  return {
    append(tokenId: number): void {
      outputTokenIds.push(tokenId);
    },
    excluded(): number[] {
      logits.numRequests = 1;
      logits.row(0).fill(0);
      processor.updateState(null);
      processor.apply(logits);
      return [...logits.row(0)].flatMap((logit, tokenId) => (logit === -Infinity ? [tokenId] : []));
    },
  };
}

/** vLLM's scan of the window for each token, in its own terms. */
function scanned(output: readonly number[], size: number, windowSize: number, whitelist: readonly number[]): number[] {
  if (output.length < size) return [];
  const prefix = output.slice(output.length - (size - 1));
  const banned = new Set<number>();
  for (let start = Math.max(0, output.length - windowSize); start <= output.length - size; start++) {
    if (prefix.every((tokenId, index) => output[start + index] === tokenId)) banned.add(output[start + size - 1]!);
  }
  return [...banned].filter((tokenId) => !whitelist.includes(tokenId)).toSorted((a, b) => a - b);
}

const vocabSize = 6;
const tokens = fc.array(fc.nat(vocabSize - 1), { maxLength: 120 });

describe("an n-gram of the output", () => {
  test("is excluded exactly where a scan of the window excludes it, token by token", () => {
    const whitelist = fc.uniqueArray(fc.nat(vocabSize - 1), { maxLength: 3 });
    const property = fc.property(
      tokens,
      fc.integer({ min: 1, max: 6 }),
      fc.integer({ min: 1, max: 40 }),
      whitelist,
      (output, size, windowSize, allowed) => {
        const row = createRow({ ngram_size: size, window_size: windowSize, whitelist_token_ids: allowed }, vocabSize);
        output.forEach((tokenId, index) => {
          row.append(tokenId);
          expect(row.excluded()).toEqual(scanned(output.slice(0, index + 1), size, windowSize, allowed));
        });
      },
    );
    fc.assert(property, { numRuns: 200 });
  });

  test("is excluded in the whole output for no_repeat_ngram_size", () => {
    const property = fc.property(tokens, fc.integer({ min: 1, max: 6 }), (output, size) => {
      const row = createRow({ no_repeat_ngram_size: size }, vocabSize);
      output.forEach((tokenId, index) => {
        row.append(tokenId);
        expect(row.excluded()).toEqual(scanned(output.slice(0, index + 1), size, Infinity, []));
      });
    });
    fc.assert(property, { numRuns: 100 });
  });

  test("is excluded as well if the processor meets a long output at once, as after a preemption", () => {
    const property = fc.property(
      tokens,
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 40 }),
      (output, size, windowSize) => {
        const row = createRow({ ngram_size: size, window_size: windowSize }, vocabSize);
        for (const tokenId of output) row.append(tokenId);
        expect(row.excluded()).toEqual(scanned(output, size, windowSize, []));
      },
    );
    fc.assert(property, { numRuns: 200 });
  });

  test("is distinguished from another with the same hash", () => {
    // With h(x, y) = x * B + y modulo 2^32, adding 1 to x and subtracting B from y changes nothing.
    const base = 0x9e3779b1;
    const output = [0, base + 5, 3, 1, 5];
    const row = createRow({ ngram_size: 3 }, vocabSize);
    for (const tokenId of output) row.append(tokenId);
    expect(row.excluded()).toEqual([]);
    const repeating = createRow({ ngram_size: 3 }, vocabSize);
    for (const tokenId of [1, 5, 3, 1, 5]) repeating.append(tokenId);
    expect(repeating.excluded()).toEqual([3]);
  });

  test("has a window of 100 tokens by default", () => {
    const row = createRow({ ngram_size: 2 }, 256);
    for (let tokenId = 0; tokenId < 99; tokenId++) row.append(tokenId);
    row.append(0);
    expect(row.excluded()).toEqual([1]);
    const late = createRow({ ngram_size: 2 }, 256);
    for (let tokenId = 0; tokenId < 100; tokenId++) late.append(tokenId);
    late.append(0);
    expect(late.excluded()).toEqual([]);
  });

  test("is excluded by both rules if a request has both", () => {
    const row = createRow({ ngram_size: 2, window_size: 3, no_repeat_ngram_size: 4 }, 10);
    for (const tokenId of [1, 2, 3, 4, 7, 1, 2, 3]) row.append(tokenId);
    expect(row.excluded()).toEqual([4]);
    row.append(2);
    expect(row.excluded()).toEqual([3]);
  });
});

test("a step reads as many tokens after 8,000 tokens of output as after 400", () => {
  const stepReads = (numTokens: number): number => {
    const tokenIds: number[] = [];
    let numReads = 0;
    const counted = new Proxy(tokenIds, {
      get(target, key, receiver) {
        if (/^\d+$/.test(String(key))) numReads++;
        return Reflect.get(target, key, receiver) as unknown;
      },
    });
    const rule = { size: 30, windowSize: 90, allowedTokenIds: new Set<number>() };
    const index = new NgramIndex(rule, counted);
    const logits = new StepLogits(1, 8);
    logits.numRequests = 1;
    // A loop of 40 tokens: every step finds an n-gram to exclude.
    for (let length = 1; length <= numTokens; length++) {
      tokenIds.push(length % 40);
      numReads = 0;
      index.excludeRepeats(logits, 0);
    }
    return numReads;
  };
  expect(stepReads(8000)).toBe(stepReads(400));
  expect(stepReads(8000)).toBeGreaterThan(2 * 29);
});

test.for([
  [{ ngram_size: -1 }, "ngram_size must be a whole number from 0 to 1024, got -1."],
  [{ ngram_size: 1025 }, "ngram_size must be a whole number from 0 to 1024, got 1025."],
  [{ ngram_size: "3" }, 'ngram_size must be a whole number from 0 to 1024, got "3".'],
  [{ ngram_size: 3, window_size: 0 }, "window_size must be a whole number from 1 to 9007199254740991, got 0."],
  [{ ngram_size: 3, whitelist_token_ids: 7 }, "whitelist_token_ids must be a list of token ids, got 7."],
  [{ ngram_size: 3, whitelist_token_ids: [7, -1] }, "whitelist_token_ids must contain only token ids, got -1."],
  [{ no_repeat_ngram_size: 2.5 }, "no_repeat_ngram_size must be a whole number from 0 to 1024, got 2.5."],
] as const)("rejects %o", ([extraArgs, message]) => {
  expect(() => createSamplingParams({ extraArgs })).toThrow(message);
});

test("a size of 0 turns the rule off, whatever else is given", () => {
  const row = createRow({ ngram_size: 0, window_size: 0, no_repeat_ngram_size: 0 }, 3);
  for (const tokenId of [1, 1, 1, 1]) row.append(tokenId);
  expect(row.excluded()).toEqual([]);
});
