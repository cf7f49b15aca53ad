import * as fc from "fast-check";
import { expect, test } from "vitest";

import {
  decodeBounds,
  decodeShape,
  paddedSequences,
  sequenceCountsUpTo,
} from "../../../engine/decoder/decode-buckets.ts";

test("pads sequences and columns to shapes that are used again, at most to twice the size", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 256 }), fc.integer({ min: 1, max: 5000 }), (numSequences, numColumns) => {
      const shape = { numTokens: numSequences, numSequences, numColumns, numRows: numSequences };
      const padded = decodeShape(shape);
      expect(padded.numSequences).toBeGreaterThanOrEqual(numSequences);
      expect(padded.numSequences).toBeLessThanOrEqual(2 * numSequences);
      expect(padded.numTokens).toBe(padded.numSequences);
      expect(padded.numRows).toBe(padded.numSequences);
      expect(padded.numColumns).toBeGreaterThanOrEqual(numColumns);
      expect(padded.numColumns).toBeLessThanOrEqual(Math.max(8, 2 * numColumns));
      expect(decodeShape(padded)).toEqual(padded);
    }),
  );
});

test("leaves numbers of sequences beyond the largest bucket as they are", () => {
  expect(paddedSequences(300)).toBe(300);
});

test("counts up to a padded number of sequences", () => {
  expect(sequenceCountsUpTo(12)).toEqual([1, 2, 4, 8, 12]);
  expect(sequenceCountsUpTo(1)).toEqual([1]);
});

test("tells the narrowest table of a few sequences whether the longest one is to be divided", () => {
  const boundsOf = (numSequences: number, numColumns: number, longest: number) =>
    decodeBounds({ numSequences, numColumns }, 128, longest).minLongestLength;
  expect([1, 512, 513, 1024].map((longest) => boundsOf(8, 8, longest))).toEqual([1, 1, 513, 513]);
  expect(boundsOf(12, 8, 1024)).toBe(1);
  expect([boundsOf(1, 16, 1025), boundsOf(12, 16, 2000)]).toEqual([1025, 1025]);
});
