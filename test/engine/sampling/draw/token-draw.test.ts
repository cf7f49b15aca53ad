import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { philox4x32, uniformAt } from "../../../../engine/sampling/draw/random.ts";
import { TokenDraw } from "../../../../engine/sampling/draw/token-draw.ts";
import { scale } from "../../../../engine/sampling/row-operations.ts";
import { kernelWithRow } from "../kernel-with-row.ts";

/** Probabilities of the tokens that can be drawn, by sorting the whole vocabulary. Shares no code with TokenDraw. */
function referenceProbabilities(logits: readonly number[], topK: number, topP: number): number[] {
  const largest = Math.max(...logits);
  const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  let kept = order;
  if (topK > 0 && topK < logits.length) kept = kept.filter((id) => logits[id]! >= logits[order[topK - 1]!]!);
  const weight = (id: number): number => Math.exp(logits[id]! - largest);
  const sum = (ids: readonly number[]): number => ids.reduce((total, id) => total + weight(id), 0);
  const total = sum(kept);
  if (topP < 1) {
    let before = 0;
    kept = kept.filter((id) => {
      const isKept = before < topP * total * (1 - 1e-12);
      before += weight(id);
      return isKept;
    });
  }
  const keptTotal = sum(kept);
  return logits.map((_, id) => (kept.includes(id) ? weight(id) / keptTotal : 0));
}

/** Uniform numbers at which a row is always drawn: a token in the wrong place shows if it has more than one of them. */
const NUM_GRID_POINTS = 256;
/** How exactly the place is found at which one token ends and the next begins. */
const PRECISION = 2 ** -15;
/** Every token has an error of up to one precision at either end. */
const TOLERANCE = 2 * PRECISION + 1e-9;

/**
 * Share of the uniform numbers in [0, 1) that draws each token. A draw is a step function of the uniform number: the
 * function is taken at the points of a grid, and each step between two points is found by bisection.
 */
function measuredProbabilities(logits: readonly number[], topK: number, topP: number): number[] {
  const kernel = kernelWithRow(logits);
  const draw = new TokenDraw(kernel);
  const drawAt = (uniform: number): number => draw.draw(kernel.logits, { scale: 1, topK, topP, uniform });
  const shares = logits.map(() => 0);
  const measure = (start: number, first: number, end: number, last: number): void => {
    if (first === last || end - start <= PRECISION) {
      shares[first]! += end - start;
      return;
    }
    const middle = (start + end) / 2;
    const token = drawAt(middle);
    measure(start, first, middle, token);
    measure(middle, token, end, last);
  };
  const largest = 1 - Number.EPSILON / 2;
  const grid = Array.from({ length: NUM_GRID_POINTS }, (_, index) => index / NUM_GRID_POINTS);
  const tokens = [...grid, largest].map(drawAt);
  for (const [index, start] of grid.entries()) {
    measure(start, tokens[index]!, grid[index + 1] ?? 1, tokens[index + 1]!);
  }
  return shares;
}

describe("drawing a token", () => {
  const rowOf = (largest: number, step: number): fc.Arbitrary<number[]> =>
    fc.array(
      fc.integer({ min: 0, max: largest }).map((n) => n * step),
      { minLength: 1, maxLength: 40 },
    );
  // Few tokens matter in a row of the first kind. Many do in one of the second, and cuts fall between equal ones.
  const logitValues = fc.oneof(rowOf(64, 1 / 4), rowOf(4, 1 / 2));

  test("every token is drawn as often as a sorted vocabulary predicts, for any top-k and top-p", () => {
    fc.assert(
      fc.property(logitValues, fc.integer({ min: 0, max: 45 }), fc.integer({ min: 1, max: 20 }), (logits, topK, n) => {
        const topP = n / 20;
        const expected = referenceProbabilities(logits, topK, topP);
        const measured = measuredProbabilities(logits, topK, topP);
        for (let id = 0; id < logits.length; id++) {
          expect(Math.abs(measured[id]! - expected[id]!)).toBeLessThan(expected[id] === 0 ? 1e-9 : TOLERANCE);
        }
      }),
      { numRuns: 150 },
    );
  });

  test("top-k keeps every token equal to the k-th", () => {
    expect(measuredProbabilities([1, 3, 2, 2, 2, 0], 2, 1).map((p) => p > 0)).toEqual([
      false,
      true,
      true,
      true,
      true,
      false,
    ]);
  });

  test("a top-k beyond the vocabulary is off", () => {
    expect(measuredProbabilities([1, 1, 1, 1], 9, 1)).toEqual([0.25, 0.25, 0.25, 0.25]);
  });

  test("top-p keeps the most likely token however small it is", () => {
    expect(measuredProbabilities([0, 1, 0.5], 0, 1e-9)).toEqual([0, 1, 0]);
  });

  test("top-p ends with the token that reaches the mass", () => {
    const logits = [0.5, 0.3, 0.15, 0.05].map(Math.log);
    expect(measuredProbabilities(logits, 0, 0.79).map((p) => p > 0)).toEqual([true, true, false, false]);
    expect(measuredProbabilities(logits, 0, 0.81).map((p) => p > 0)).toEqual([true, true, true, false]);
  });

  test("top-p counts mass after top-k has been applied", () => {
    const logits = [0.4, 0.3, 0.2, 0.1].map(Math.log);
    expect(measuredProbabilities(logits, 2, 0.5).map((p) => p > 0)).toEqual([true, false, false, false]);
    expect(measuredProbabilities(logits, 2, 0.6).map((p) => p > 0)).toEqual([true, true, false, false]);
  });

  test("excluded tokens and NaN are never drawn", () => {
    expect(measuredProbabilities([-Infinity, 0, NaN, 0], 0, 1)).toEqual([0, 0.5, 0, 0.5]);
  });

  test("a token forced by an infinite logit is drawn", () => {
    const kernel = kernelWithRow([0, Infinity, 9]);
    expect(new TokenDraw(kernel).draw(kernel.logits, { scale: 1, topK: 0, topP: 0.5, uniform: 0.9 })).toBe(1);
  });

  test("returns no token when all are excluded", () => {
    const kernel = kernelWithRow(new Float32Array(4).fill(-Infinity));
    expect(new TokenDraw(kernel).draw(kernel.logits, { scale: 1, topK: 2, topP: 0.5, uniform: 0.5 })).toBe(-1);
  });

  test("a row scaled in place draws the same token as a row scaled on the fly", () => {
    fc.assert(
      fc.property(
        fc.array(fc.float({ min: -20, max: 20, noNaN: true }), { minLength: 1, maxLength: 64 }),
        fc.double({ min: 0.01, max: 2, noNaN: true }),
        fc.double({ min: 0, max: 0.999999, noNaN: true }),
        (logits, temperature, uniform) => {
          const kernel = kernelWithRow(logits);
          const row = kernel.logits;
          const draw = new TokenDraw(kernel);
          const onTheFly = draw.draw(row, { scale: 1 / temperature, topK: 5, topP: 0.9, uniform });
          scale(row, 1 / temperature);
          expect(draw.draw(row, { scale: 1, topK: 5, topP: 0.9, uniform })).toBe(onTheFly);
        },
      ),
    );
  });
});

describe("the seeded generator", () => {
  // Known answers published with the algorithm's reference implementation (Random123, kat_vectors).
  test.for([
    { counter: 0, key: 0, expected: [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8] },
    { counter: 0xffffffff, key: 0xffffffff, expected: [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd] },
  ])("gives the published words for counter $counter", ({ counter, key, expected }) => {
    expect(philox4x32(counter, counter, counter, counter, key, key)).toEqual(expected);
  });

  test("depends only on seed and position, for any safe integer", () => {
    const seeds = [0, 1, 2 ** 32, -1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];
    const numbers = seeds.flatMap((seed) => [0, 1, 2].map((position) => uniformAt(seed, position)));
    expect(new Set(numbers).size).toBe(numbers.length);
    for (const number of numbers) expect(number >= 0 && number < 1).toBe(true);
    expect(uniformAt(7, 3)).toBe(uniformAt(7, 3));
  });

  test("is uniform: a thousand positions average to one half", () => {
    const numbers = Array.from({ length: 1000 }, (_, position) => uniformAt(42, position));
    expect(numbers.reduce((sum, number) => sum + number, 0) / 1000).toBeCloseTo(0.5, 1);
  });
});
