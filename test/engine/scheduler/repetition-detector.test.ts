import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { RepetitionDetection } from "../../../engine/contract/repetition-detection.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { RepetitionDetector } from "../../../engine/scheduler/repetition-detector.ts";
import { checkStop, Sequence } from "../../../engine/scheduler/sequence.ts";
import type { TokenStop } from "../../../engine/scheduler/sequence.ts";
import { createRequest, eosTokenId } from "./create-scheduler.ts";

/** Compares the whole tail with each pattern size, as vLLM's `check_sequence_repetition`. */
function endsInLoop(
  output: readonly number[],
  { maxPatternSize, minPatternSize, minCount }: RepetitionDetection,
): boolean {
  for (let size = Math.max(minPatternSize, 1); size <= maxPatternSize; size++) {
    if (size * minCount > output.length) return false;
    const tail = output.slice(output.length - size * minCount);
    if (tail.every((tokenId, index) => tokenId === tail[index % size])) return true;
  }
  return false;
}

const detection = fc
  .record({ minPatternSize: fc.nat(6), width: fc.nat(6), minCount: fc.integer({ min: 2, max: 5 }) })
  .map(({ minPatternSize, width, minCount }) => {
    return { minPatternSize, maxPatternSize: Math.max(minPatternSize + width, 1), minCount };
  });
/** Random tokens, and patterns in a row between them, so that loops are common. */
const output = fc
  .array(
    fc.record({ pattern: fc.array(fc.nat(3), { minLength: 1, maxLength: 8 }), count: fc.integer({ min: 1, max: 6 }) }),
    { maxLength: 8 },
  )
  .map((parts) => parts.flatMap(({ pattern, count }) => Array.from({ length: count }, () => pattern).flat()));

test("a loop is found at the tokens where a comparison of the whole tail finds it", () => {
  let numLoops = 0;
  const property = fc.property(output, detection, (tokenIds, params) => {
    const detector = new RepetitionDetector(params);
    const live: number[] = [];
    for (const tokenId of tokenIds) {
      live.push(tokenId);
      const isLoop = endsInLoop(live, params);
      numLoops += Number(isLoop);
      expect(detector.readNewest(live)).toBe(isLoop);
    }
  });
  fc.assert(property, { numRuns: 500 });
  expect(numLoops).toBeGreaterThan(100);
});

describe("a sequence that repeats itself", () => {
  const repetitionDetection = { maxPatternSize: 5, minPatternSize: 2, minCount: 3 };

  function stopsOf(tokenIds: readonly number[], samplingParams: object = {}): (TokenStop | null)[] {
    const sequence = new Sequence(createRequest("a", { samplingParams: { repetitionDetection, ...samplingParams } }));
    return tokenIds.map((tokenId) => {
      sequence.outputTokenIds.push(tokenId);
      return checkStop(sequence, { eosTokenIds: new Set([eosTokenId]), maxModelLen: 64 });
    });
  }

  const repetition = { finishReason: "repetition", stopReason: "repetition_detected" };

  test("ends with a reason of its own", () => {
    expect(stopsOf([10, 20, 10, 20, 10, 20])).toEqual([null, null, null, null, null, repetition]);
  });

  test("continues until minTokens, and the tokens before it count", () => {
    const stops = stopsOf([10, 20, 10, 20, 10, 20, 10], { minTokens: 7 });
    expect(stops).toEqual([null, null, null, null, null, null, repetition]);
  });

  test("ends with its end token or length if that comes with the same token", () => {
    expect(stopsOf([10, 2, 10, 2, 10, 2], { minTokens: 6 }).at(-1)).toEqual({ finishReason: "stop", stopReason: null });
    expect(stopsOf([10, 20, 10, 20, 10, 20], { maxTokens: 6 }).at(-1)).toEqual({
      finishReason: "length",
      stopReason: null,
    });
  });

  test("continues with a maxPatternSize of 0", () => {
    const off = { repetitionDetection: { maxPatternSize: 0, minPatternSize: 0, minCount: 0 } };
    expect(createSamplingParams(off).repetitionDetection).toBeNull();
    expect(stopsOf([1, 1, 1, 1, 1, 1, 1, 1], off).filter((stop) => stop !== null)).toEqual([]);
  });
});

test.for([
  [
    { maxPatternSize: -1, minPatternSize: 0, minCount: 2 },
    "repetitionDetection.maxPatternSize must be a whole number from 0 to 2048, got -1.",
  ],
  [
    { maxPatternSize: 2049, minPatternSize: 0, minCount: 2 },
    "repetitionDetection.maxPatternSize must be a whole number from 0 to 2048, got 2049.",
  ],
  [
    { maxPatternSize: 3, minPatternSize: 4, minCount: 2 },
    "repetitionDetection.minPatternSize must be at most maxPatternSize=3, got 4.",
  ],
  [
    { maxPatternSize: 3, minPatternSize: 1, minCount: 1 },
    "repetitionDetection.minCount must be a whole number from 2 to 1024, got 1.",
  ],
] as const)("rejects %o", ([repetitionDetection, message]) => {
  expect(() => createSamplingParams({ repetitionDetection })).toThrow(message);
});
