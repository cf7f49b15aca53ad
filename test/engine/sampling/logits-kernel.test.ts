import * as fc from "fast-check";
import { expect, test } from "vitest";

import { LogitsKernel, NUM_BUCKETS } from "../../../engine/sampling/logits-kernel.ts";

const logit = fc.oneof(
  { weight: 8, arbitrary: fc.float({ min: -40, max: 40, noNaN: true }) },
  { weight: 1, arbitrary: fc.constantFrom(NaN, -Infinity, -0, 0, 1e-40, 40) },
);
/** Three rows of one length. */
const rowsOfThree = fc
  .array(fc.tuple(logit, logit, logit), { minLength: 1, maxLength: 41 })
  .map((columns) => [0, 1, 2].map((row) => Float32Array.from(columns, (column) => column[row]!)));
const scales = fc.constantFrom(1, Math.fround(1 / 0.7), 0.5, 100);

/** Each row, at its position in the kernel's memory. */
function rowsInKernel(rows: readonly Float32Array[]): { kernel: LogitsKernel; views: Float32Array[] } {
  const vocabSize = rows[0]!.length;
  const kernel = new LogitsKernel(rows.length, vocabSize);
  const views = rows.map((row, index) => {
    const view = kernel.logits.subarray(index * vocabSize, (index + 1) * vocabSize);
    view.set(row);
    return view;
  });
  return { kernel, views };
}

test("the maximum and its lowest index are found for any row length and alignment, and NaN is ignored", () => {
  fc.assert(
    fc.property(rowsOfThree, (rows) => {
      const { kernel, views } = rowsInKernel(rows);
      for (const [index, row] of rows.entries()) {
        const largest = row.reduce((left, right) => (right > left ? right : left), -Infinity);
        expect(kernel.maximum(views[index]!) + 0).toBe(largest + 0);
        expect(kernel.argmax(views[index]!)).toBe(largest === -Infinity ? -1 : row.indexOf(largest));
      }
    }),
    { numRuns: 200 },
  );
});

test("tokens are in the bucket of their distance from the maximum, and add their probability to its mass", () => {
  fc.assert(
    fc.property(rowsOfThree, scales, (rows, scale) => {
      for (const row of rows) row[0] = 1;
      const { kernel, views } = rowsInKernel(rows);
      for (const row of views) {
        const largest = Math.fround(kernel.maximum(row) * scale);
        kernel.fillBuckets(row, scale, largest);
        const distances = Array.from(row, (value) => Math.fround(largest - Math.fround(value * scale)));
        const buckets = distances.map((distance) =>
          distance * 64 < NUM_BUCKETS ? Math.floor(distance * 64) : NUM_BUCKETS,
        );
        expect(Array.from(kernel.bucketOf, (bucket) => Math.min(bucket, NUM_BUCKETS))).toEqual(buckets);

        const masses = new Float64Array(NUM_BUCKETS);
        buckets.forEach((bucket, token) => (masses[bucket]! += Math.exp(bucket / 64 - distances[token]!)));
        const errors = masses.map((mass, bucket) => Math.abs(kernel.masses[bucket]! - mass));
        expect(Math.max(...errors)).toBeLessThan(1e-5);
      }
    }),
    { numRuns: 100 },
  );
});

test("passes do not change the rows", () => {
  fc.assert(
    fc.property(rowsOfThree, scales, (rows, scale) => {
      for (const row of rows) row[0] = 1;
      const { kernel, views } = rowsInKernel(rows);
      for (const row of views) kernel.fillBuckets(row, scale, Math.fround(kernel.maximum(row) * scale));
      expect(views.map((view) => Float32Array.from(view))).toEqual(rows);
    }),
    { numRuns: 50 },
  );
});

test("more rows than memory can hold are rejected with the number that fits", () => {
  expect(() => new LogitsKernel(100_000, 151_936)).toThrow(/100000 sequences with 151936 tokens each .* at most 7011 /);
});
