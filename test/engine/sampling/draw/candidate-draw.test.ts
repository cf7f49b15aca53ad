import * as fc from "fast-check";
import { expect, test } from "vitest";

import { CandidateDraw, UNDECIDED } from "../../../../engine/sampling/draw/candidate-draw.ts";
import type { Candidates } from "../../../../engine/sampling/draw/candidate-draw.ts";
import { TokenDraw } from "../../../../engine/sampling/draw/token-draw.ts";
import { dropBelow, maximum } from "../../../../engine/sampling/row-operations.ts";
import { kernelWithRow } from "../kernel-with-row.ts";

/** The `count` most likely tokens, as TopK orders them, and the mass as a device would compute it. */
function candidatesOf(row: Float32Array, count: number, scale: number): Candidates {
  const order = Array.from(row.keys()).sort((left, right) => row[right]! - row[left]! || left - right);
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

const options = fc.record({
  temperature: fc.constantFrom(0.2, 0.7, 1, 1.5),
  topK: fc.constantFrom(0, 0, 1, 5, 15, 16, 40),
  topP: fc.constantFrom(1, 1, 0.3, 0.9, 0.999),
  minP: fc.constantFrom(0, 0, 0.01, 0.2),
  uniform: fc.constantFrom(0, 0.1, 0.37, 0.5, 0.83, 0.99, 1 - 2 ** -53),
});

test("draws the token that the whole row gives, or does not decide", () => {
  let numDecided = 0;
  let numDraws = 0;
  const draw = new CandidateDraw();
  fc.assert(
    fc.property(logits, options, (row, { temperature, topK, topP, minP, uniform }) => {
      if (maximum(row) === -Infinity) return;
      const scale = Math.fround(1 / temperature);
      const candidates = candidatesOf(row, Math.min(numCandidates, row.length), scale);
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
  expect(numDecided / numDraws).toBeGreaterThan(0.5);
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
