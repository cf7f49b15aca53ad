import * as fc from "fast-check";
import { expect, test } from "vitest";

import { decodeShape, paddedSequences, sequenceCountsUpTo } from "../../../engine/decoder/decode-buckets.ts";

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
