import fc from "fast-check";
import { expect, test } from "vitest";
import { DrawKernel, numBuckets } from "../../engine/sampling/draw-kernel.ts";

const logit = fc.oneof(
  { weight: 8, arbitrary: fc.float({ min: -40, max: 40, noNaN: true }) },
  { weight: 1, arbitrary: fc.constantFrom(NaN, -Infinity, -0, 0, 1e-40) },
);
const rows = fc.array(logit, { minLength: 1, maxLength: 41 }).map((values) => Float32Array.from(values));
const scales = fc.constantFrom(1, Math.fround(1 / 0.7), 0.5, 100);

test("tokens lie in the bucket of their distance from the largest, whatever the row's length", () => {
  fc.assert(
    fc.property(rows, scales, (row, scale) => {
      const kernel = new DrawKernel(row.length);
      kernel.row.set(row);
      const comparable = row.filter((value) => !Number.isNaN(value));
      expect(kernel.maximum()).toBe(comparable.reduce((left, right) => Math.max(left, right), -Infinity));
      if (!comparable.some((value) => value > -Infinity)) return;

      const largest = Math.fround(kernel.maximum() * scale);
      kernel.fillBuckets(scale, largest);
      const masses = new Float64Array(numBuckets);
      row.forEach((value, tokenId) => {
        const distance = Math.fround(largest - Math.fround(value * scale));
        const bucket = Math.floor(distance * 64);
        if (!(bucket < numBuckets)) return expect(kernel.bucketOf[tokenId]).toBeGreaterThanOrEqual(numBuckets);
        expect(kernel.bucketOf[tokenId]).toBe(bucket);
        return void (masses[bucket] += Math.exp(bucket / 64 - distance));
      });
      masses.forEach((mass, bucket) => {
        if (mass === 0) expect(kernel.masses[bucket]).toBe(0);
        else expect(kernel.masses[bucket] / mass).toBeCloseTo(1, 6);
      });
    }),
    { numRuns: 300 },
  );
});
