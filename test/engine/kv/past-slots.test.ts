/** Keys and values of exports: whatever is moved between slots and run together, each slot keeps its own. */
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { PastBatch } from "../../../engine/kv/past-batch.ts";
import { PastSlots } from "../../../engine/kv/past-slots.ts";
import type { DecoderExport } from "../../../engine/models/built-model.ts";
import type { Tensor } from "../../../engine/runtime/tensor.ts";

const numSlots = 4;
const maxLen = 12;
const [numLayers, numKvHeads, headDim] = [1, 2, 2];

const graph: DecoderExport = {
  form: "export",
  path: "",
  numLayers,
  numKvHeads,
  headDim,
  hiddenSize: 4,
  imageWidth: 4,
  vocabSize: 8,
  kvElementType: "float32",
  acceptsImages: false,
  takesPositions: false,
  embedTokens: null,
  embedsElementType: "float32",
  logitsElementType: "float32",
  kvLayers: [0, 1],
  states: [],
  takesTokenTypes: false,
  takesAttentionMask: true,
  numPositionAxes: 1,
  numLogitsToKeepRank: null,
  hasCacheBranch: false,
  weightBytes: 1e6,
  padding: "front",
};

/** Values of a token in a head, unique to the token's name. */
function numbersOf(token: number, tensorIndex: number, head: number): number[] {
  return Array.from({ length: headDim }, (_, index) => token * 100 + tensorIndex * 10 + head * headDim + index);
}

/** Does the same as a run: writes the past of each row, padding included, then its new tokens. */
function writePresent(
  past: readonly Tensor[],
  present: readonly Tensor[],
  newTokens: readonly (readonly number[])[],
  /** By row: number of past tokens in front of its padding. */
  lengths: readonly number[] = newTokens.map(() => past[0]!.shape[2]!),
): void {
  past.forEach((tensor, tensorIndex) => {
    const [numRows, , numPast] = tensor.shape;
    const from = tensor.data as Float32Array;
    const to = present[tensorIndex]!.data as Float32Array;
    const numTotal = present[tensorIndex]!.shape[2]!;
    for (let row = 0; row < numRows!; row++) {
      for (let head = 0; head < numKvHeads; head++) {
        const start = (row * numKvHeads + head) * numPast! * headDim;
        const added = newTokens[row]!.flatMap((token) => numbersOf(token, tensorIndex, head));
        const target = (row * numKvHeads + head) * numTotal * headDim;
        to.set(from.subarray(start, start + numPast! * headDim), target);
        to.set(added, target + lengths[row]! * headDim);
      }
    }
  });
}

const slot = fc.nat({ max: numSlots - 1 });
const operation = fc.oneof(
  fc.record({ kind: fc.constant("run" as const), slot, numTokens: fc.integer({ min: 1, max: 4 }) }),
  fc.record({ kind: fc.constant("together" as const), slots: fc.uniqueArray(slot, { minLength: 2 }) }),
  fc.record({ kind: fc.constant("truncate" as const), slot, share: fc.double({ min: 0, max: 1, noNaN: true }) }),
  fc.record({
    kind: fc.constant("copy" as const),
    slot,
    toSlot: slot,
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  }),
  fc.record({ kind: fc.constant("swap" as const), slot, toSlot: slot }),
);

test.for(["front", "back"] as const)(
  "with padding in %s, each slot keeps its own tokens under any operations",
  (padding) => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 40 }), (operations) => {
        const pastSlots = new PastSlots(graph, { numSlots, maxLen });
        const pastBatch = new PastBatch({ ...graph, padding }, pastSlots);
        const expected: number[][] = Array.from({ length: numSlots }, () => []);
        const masks: bigint[][] = [];
        const expectedMasks: bigint[][] = [];
        let nextToken = 1;
        const take = (numTokens: number): number[] => Array.from({ length: numTokens }, () => nextToken++);
        for (const step of operations) {
          if (step.kind === "run") {
            const tokens = take(step.numTokens);
            const numTotal = expected[step.slot]!.length + tokens.length;
            if (numTotal > maxLen) continue;
            writePresent(pastSlots.past(step.slot), pastSlots.present(numTotal), [tokens]);
            pastSlots.keepPresent(step.slot, numTotal);
            expected[step.slot]!.push(...tokens);
          } else if (step.kind === "together") {
            const slots = step.slots.filter((candidate) => expected[candidate]!.length < maxLen);
            if (slots.length < 2) continue;
            const tokens = slots.map(() => take(1));
            const { mask, past, present } = pastBatch.gather(slots);
            const numTotal = mask.length / slots.length;
            slots.forEach((candidate, row) => {
              const seen = Array.from({ length: expected[candidate]!.length + 1 }, () => 1n);
              const unseen = Array.from({ length: numTotal - seen.length }, () => 0n);
              masks.push([...mask.subarray(row * numTotal, (row + 1) * numTotal)]);
              expectedMasks.push(padding === "front" ? [...unseen, ...seen] : [...seen, ...unseen]);
            });
            const lengths = slots.map((candidate) =>
              padding === "front" ? numTotal - 1 : expected[candidate]!.length,
            );
            writePresent(past, present, tokens, lengths);
            pastBatch.scatter(slots);
            slots.forEach((candidate, row) => expected[candidate]!.push(...tokens[row]!));
          } else if (step.kind === "truncate") {
            const numTokens = Math.floor(expected[step.slot]!.length * step.share);
            pastSlots.truncate(step.slot, numTokens);
            expected[step.slot]!.length = numTokens;
          } else if (step.kind === "copy") {
            if (step.slot === step.toSlot) continue;
            const numTokens = Math.floor(expected[step.slot]!.length * step.share);
            pastSlots.transfer({ kind: "copy", fromSlot: step.slot, toSlot: step.toSlot, numTokens });
            expected[step.toSlot] = expected[step.slot]!.slice(0, numTokens);
          } else {
            const slots = [step.slot, step.toSlot] as const;
            pastSlots.transfer({ kind: "swap", slots, numTokens: [0, 0] });
            [expected[slots[0]], expected[slots[1]]] = [expected[slots[1]]!, expected[slots[0]]!];
          }
        }
        expect(masks).toEqual(expectedMasks);
        expected.forEach((tokens, index) => {
          expect(pastSlots.lengthOf(index)).toBe(tokens.length);
          pastSlots.past(index).forEach(({ data, shape }, tensorIndex) => {
            expect(shape).toEqual([1, numKvHeads, tokens.length, headDim]);
            const heads = Array.from({ length: numKvHeads }, (_, head) => head);
            expect([...data]).toEqual(
              heads.flatMap((head) => tokens.flatMap((token) => numbersOf(token, tensorIndex, head))),
            );
          });
        });
      }),
    );
  },
);

test("pasts run together while they have fewer bytes than the weights", () => {
  const bytesPerToken = 2 * numLayers * numKvHeads * headDim * 4;
  const pastSlots = new PastSlots(graph, { numSlots, maxLen });
  for (let index = 0; index < numSlots; index++) pastSlots.keepPresent(index, 3);
  const numFitting = (weightBytes: number): number =>
    new PastBatch({ ...graph, weightBytes }, pastSlots).numFitting([0, 1, 2, 3]);
  expect(numFitting(12 * bytesPerToken)).toBe(4);
  expect(numFitting(12 * bytesPerToken - 1)).toBe(3);
  expect(numFitting(6 * bytesPerToken)).toBe(2);
  // At least one is run.
  expect(numFitting(0)).toBe(1);
});
