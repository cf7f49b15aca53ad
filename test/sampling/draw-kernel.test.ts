import * as fc from "fast-check";
import { expect, test } from "vitest";
import { DrawKernel, numBuckets } from "../../engine/sampling/draw-kernel.ts";

const logit = fc.oneof(
  { weight: 8, arbitrary: fc.float({ min: -40, max: 40, noNaN: true }) },
  { weight: 1, arbitrary: fc.constantFrom(NaN, -Infinity, -0, 0, 1e-40) },
);
const rows = fc.array(logit, { minLength: 1, maxLength: 41 }).map((values) => Float32Array.from(values));
const scales = fc.constantFrom(1, Math.fround(1 / 0.7), 0.5, 100);

test("the largest is found whatever the row's length, and NaN is not it", () => {
  fc.assert(
    fc.property(rows, (row) => {
      const kernel = new DrawKernel(row.length);
      kernel.row.set(row);
      const largest = row.reduce((left, right) => (right > left ? right : left), -Infinity);
      expect(kernel.maximum() + 0).toBe(largest + 0);
    }),
    { numRuns: 200 },
  );
});

test("tokens lie in the bucket of their distance from the largest, and add their probability to its mass", () => {
  fc.assert(
    fc.property(rows, scales, (logits, scale) => {
      const row = Float32Array.of(1, ...logits);
      const kernel = new DrawKernel(row.length);
      kernel.row.set(row);
      const largest = Math.fround(kernel.maximum() * scale);
      kernel.fillBuckets(scale, largest);
      const distances = Array.from(row, (value) => Math.fround(largest - Math.fround(value * scale)));
      const buckets = distances.map((distance) =>
        distance * 64 < numBuckets ? Math.floor(distance * 64) : numBuckets,
      );
      expect(Array.from(kernel.bucketOf, (bucket) => Math.min(bucket, numBuckets))).toEqual(buckets);

      const masses = new Float64Array(numBuckets);
      buckets.forEach((bucket, token) => (masses[bucket] += Math.exp(bucket / 64 - distances[token])));
      const errors = masses.map((mass, bucket) => Math.abs(kernel.masses[bucket] - mass));
      expect(Math.max(...errors)).toBeLessThan(1e-5);
    }),
    { numRuns: 200 },
  );
});
