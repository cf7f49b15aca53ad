import * as fc from "fast-check";
import { expect, test } from "vitest";

import { CandidateDraw, mostLikely, UNDECIDED } from "../../../../engine/sampling/draw/candidate-draw.ts";
import type { Candidates } from "../../../../engine/sampling/draw/candidate-draw.ts";
import { uniformAt } from "../../../../engine/sampling/draw/random.ts";
import { TokenDraw } from "../../../../engine/sampling/draw/token-draw.ts";
import { dropBelow, maximum } from "../../../../engine/sampling/row-operations.ts";
import { kernelWithRow } from "../kernel-with-row.ts";

/**
 * The `count` most likely tokens, and the mass as a device would compute it. Tokens with equal logits come in an order that
 * `tieSeed` gives, and so do those that are left out; 0 orders them by id.
 */
function candidatesOf(row: Float32Array, count: number, scale: number, tieSeed = 0): Candidates {
  const rank = (tokenId: number): number => (tieSeed === 0 ? tokenId : uniformAt(tieSeed, tokenId));
  const order = Array.from(row.keys()).sort((left, right) => row[right]! - row[left]! || rank(left) - rank(right));
  const tokenIds = Int32Array.from(order.slice(0, count));
  const values = Float32Array.from(tokenIds, (tokenId) => row[tokenId]!);
  const mass = row.reduce((sum, logit) => Math.fround(sum + Math.exp(Math.fround((logit - values[0]!) * scale))), 0);
  return { values, tokenIds, mass, isWholeRow: count >= row.length };
}

const numCandidates = 16;

/** From peaked to flat, with equal logits and tokens that cannot be drawn. */
const logits = fc
  .tuple(fc.constantFrom(1, 4, 15, 60), fc.integer({ min: 5, max: 120 }), fc.nat())
  .map(([spread, length, seed]) => {
    let state = seed;
    const random = (): number => (state = (state * 48271 + 11) % 2147483647) / 2147483647;
    return Float32Array.from({ length }, () => {
      const value = (random() - 0.5) * spread;
      return random() < 0.2 ? Math.round(value) : random() < 0.05 ? -Infinity : value;
    });
  });

/** Most logits are equal to others, as they are in 16 bits. */
const tiedLogits = logits.map((row) => row.map((value) => Math.round(value * 2) / 2));

const options = fc.record({
  temperature: fc.constantFrom(0.2, 0.7, 1, 1.5),
  topK: fc.constantFrom(0, 0, 1, 5, 15, 16, 40),
  topP: fc.constantFrom(1, 1, 0.3, 0.9, 0.999),
  minP: fc.constantFrom(0, 0, 0.01, 0.2),
  uniform: fc.constantFrom(0, 0.1, 0.37, 0.5, 0.83, 0.99, 1 - 2 ** -53),
});

test.for([
  { name: "of all kinds", rows: logits },
  { name: "with many ties", rows: tiedLogits },
])("from rows $name, draws the token that the whole row gives, or does not decide", ({ rows }) => {
  let numDecided = 0;
  let numDraws = 0;
  const draw = new CandidateDraw();
  fc.assert(
    fc.property(rows, options, fc.nat(9), (row, { temperature, topK, topP, minP, uniform }, tieSeed) => {
      if (maximum(row) === -Infinity) return;
      const scale = Math.fround(1 / temperature);
      const candidates = candidatesOf(row, Math.min(numCandidates, row.length), scale, tieSeed);
      const tokenId = draw.draw(candidates, { scale, topK, topP, minP, uniform });
      numDraws++;
      if (tokenId === UNDECIDED) return;
      numDecided++;
      const scaled = row.map((logit) => Math.fround(logit * scale));
      if (minP > 0) dropBelow(scaled, maximum(scaled) + Math.log(minP));
      const kernel = kernelWithRow(scaled);
      expect(tokenId).toBe(new TokenDraw(kernel).draw(kernel.logits, { scale: 1, topK, topP, uniform }));
    }),
    { numRuns: 4000 },
  );
  expect(numDecided / numDraws).toBeGreaterThan(0.4);
});

test("the most likely token is the lowest of equal ones, in whatever order they are, or undecided", () => {
  let numDecided = 0;
  fc.assert(
    fc.property(tiedLogits, fc.nat(9), fc.integer({ min: 1, max: numCandidates }), (row, tieSeed, count) => {
      const largest = maximum(row);
      if (largest === -Infinity) return;
      const tokenId = mostLikely(candidatesOf(row, Math.min(count, row.length), 1, tieSeed));
      const isDecided = tokenId !== UNDECIDED;
      if (isDecided) numDecided++;
      const isMissing = row.filter((logit) => logit === largest).length >= count;
      expect(isDecided || isMissing).toBe(true);
      expect(isDecided ? tokenId : row.indexOf(largest)).toBe(row.indexOf(largest));
    }),
    { numRuns: 1000 },
  );
  expect(numDecided).toBeGreaterThan(500);
});

test("equal tokens at the end of the candidates leave greedy and top-p undecided only if they matter", () => {
  const row = Float32Array.of(1, 1, 1, 1, -40, -40, -40, -40, -40, -40);
  const top = { scale: 1, topK: 0, topP: 0.6, minP: 0, uniform: 0.9 };
  const decide = (count: number): (number | undefined)[] => {
    const candidates = candidatesOf(row, count, 1, 3);
    return [mostLikely(candidates), new CandidateDraw().draw(candidates, top)];
  };
  expect(decide(4)).toEqual([UNDECIDED, UNDECIDED]);
  expect(decide(5)).toEqual([0, 2]);
  expect(decide(10)).toEqual([0, 2]);
});

test("logits that are equal only after the scale are ordered by id", () => {
  const scale = Math.fround(0.6);
  const smaller = Math.fround(1.9) + 2 * 2 ** -23;
  const larger = smaller + 2 ** -23;
  expect(Math.fround(larger * scale)).toBe(Math.fround(smaller * scale));
  const row = Float32Array.of(smaller, larger, -9);
  const options = { scale, topK: 0, topP: 0.3, uniform: 0.5 };
  const kernel = kernelWithRow(row);
  expect(new TokenDraw(kernel).draw(kernel.logits, options)).toBe(0);
  expect(new CandidateDraw().draw(candidatesOf(row, 3, scale), { ...options, minP: 0 })).toBe(0);
});

test.for([
  { name: "a draw beyond the candidates", options: { uniform: 0.99 } },
  { name: "more of the likeliest than there are candidates", options: { topK: 5, uniform: 0 } },
  { name: "a share of the mass beyond the candidates", options: { topP: 0.95, uniform: 0 } },
])("does not decide $name", ({ options: given }) => {
  const row = Float32Array.from({ length: 100 }, (_, index) => -index / 1000);
  const candidates = candidatesOf(row, 4, 1);
  const tokenId = new CandidateDraw().draw(candidates, { scale: 1, topK: 0, topP: 1, minP: 0, ...given });
  expect(tokenId).toBe(UNDECIDED);
});

test("does not decide a draw that falls within the error of the mass", () => {
  const row = Float32Array.of(0, 0, ...Array.from({ length: 20 }, () => -20));
  const candidates = candidatesOf(row, 4, 1);
  const draw = (uniform: number): number =>
    new CandidateDraw().draw(candidates, { scale: 1, topK: 0, topP: 1, minP: 0, uniform });
  expect([draw(0.499), draw(0.50001), draw(0.501)]).toEqual([0, UNDECIDED, 1]);
});

test.for([NaN, Infinity])("leaves a row undecided if its largest logit is %d", (largest) => {
  const candidates = { values: Float32Array.of(largest, 1), tokenIds: Int32Array.of(0, 1), mass: 2, isWholeRow: true };
  const tokenId = new CandidateDraw().draw(candidates, { scale: 1, topK: 0, topP: 1, minP: 0, uniform: 0 });
  expect(tokenId).toBe(UNDECIDED);
});
