import * as fc from "fast-check";
import { expect, test } from "vitest";

import { quantizeBlockwise, quantizePerChannel } from "../../../engine/weights/quantize.ts";
import { dequantizeBlockwise, normalValues } from "../../support/checkpoints/dequantize.ts";

function sumOfSquares(values: ArrayLike<number>): number {
  return Array.from(values).reduce((sum, value) => sum + value * value, 0);
}

const matrix = fc
  .record({ rows: fc.integer({ min: 1, max: 4 }), columns: fc.integer({ min: 1, max: 70 }) })
  .chain(({ rows, columns }) =>
    fc.record({
      rows: fc.constant(rows),
      columns: fc.constant(columns),
      values: fc.float32Array({
        minLength: rows * columns,
        maxLength: rows * columns,
        noNaN: true,
        min: -1e6,
        max: 1e6,
      }),
    }),
  );

/** Calls `check` with the original and the dequantised values of each block. */
function forEachBlock(
  { rows, columns, values }: { rows: number; columns: number; values: Float32Array },
  format: { bits: 4 | 8; blockSize: number },
  check: (block: readonly number[], restored: readonly number[]) => void,
): void {
  const restored = dequantizeBlockwise(quantizeBlockwise(values, rows, columns, format), rows, columns, format);
  for (let row = 0; row < rows; row++) {
    for (let start = row * columns; start < (row + 1) * columns; start += format.blockSize) {
      const end = Math.min(start + format.blockSize, (row + 1) * columns);
      check([...values.subarray(start, end)], [...restored.subarray(start, end)]);
    }
  }
}

test("with 8 bits, every value of any matrix is within half a step of its block", () => {
  fc.assert(
    fc.property(matrix, fc.constantFrom(16, 32, 64), (input, blockSize) => {
      forEachBlock(input, { bits: 8, blockSize }, (block, restored) => {
        const bound = (Math.max(...block.map(Math.abs)) / 254) * (1 + 1e-5) + 1e-43;
        block.forEach((value, index) => expect(Math.abs(restored[index]! - value)).toBeLessThanOrEqual(bound));
      });
    }),
    { numRuns: 200 },
  );
});

test("with 4 bits, no block of any matrix loses more than with its largest magnitude mapped to -8", () => {
  fc.assert(
    fc.property(matrix, fc.constantFrom(16, 32, 64), (input, blockSize) => {
      forEachBlock(input, { bits: 4, blockSize }, (block, restored) => {
        const extreme = block.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0);
        const scale = extreme === 0 ? 1 : extreme / -8;
        const plain = block.map((value) => value - Math.min(7, Math.max(-8, Math.round(value / scale))) * scale);
        const ours = block.map((value, index) => value - restored[index]!);
        const roundingOfScale = sumOfSquares(block) * 1e-12 + 1e-80;
        expect(sumOfSquares(ours)).toBeLessThanOrEqual(sumOfSquares(plain) + roundingOfScale);
      });
    }),
    { numRuns: 300 },
  );
});

test.for([
  [{ bits: 4, blockSize: 32 }, 0.082],
  [{ bits: 8, blockSize: 32 }, 0.0055],
] as const)("normally distributed weights keep their error: %o below %d of their norm", ([format, limit]) => {
  const [rows, columns] = [128, 512];
  const values = normalValues(rows * columns);
  const restored = dequantizeBlockwise(quantizeBlockwise(values, rows, columns, format), rows, columns, format);
  const error = Math.sqrt(sumOfSquares(values.map((value, index) => value - restored[index]!)) / sumOfSquares(values));
  expect(error).toBeLessThan(limit);
});

test("the tail of the last block and blocks of zeros contain the zero point", () => {
  const tail4 = quantizeBlockwise(Float32Array.of(1, 2, 3), 1, 3, { bits: 4, blockSize: 16 });
  expect([...tail4.weight.subarray(2)]).toEqual([0x88, 0x88, 0x88, 0x88, 0x88, 0x88]);
  expect(tail4.weight[1]! >> 4).toBe(8);
  const tail8 = quantizeBlockwise(Float32Array.of(1, 2, 3), 1, 3, { bits: 8, blockSize: 16 });
  expect([...tail8.weight.subarray(3)]).toEqual(Array.from({ length: 13 }, () => 128));
  for (const bits of [4, 8] as const) {
    const zeros = quantizeBlockwise(new Float32Array(32), 1, 32, { bits, blockSize: 32 });
    expect([...zeros.scales]).toEqual([0]);
    expect(new Set(zeros.weight)).toEqual(new Set([bits === 4 ? 0x88 : 128]));
  }
});

test("per-channel weights are transposed and within half a step of their row", () => {
  fc.assert(
    fc.property(matrix, ({ rows, columns, values }) => {
      const { weight, scales } = quantizePerChannel(values, rows, columns);
      for (let row = 0; row < rows; row++) {
        const extreme = Math.max(...values.subarray(row * columns, (row + 1) * columns).map(Math.abs));
        for (let column = 0; column < columns; column++) {
          const code = weight[column * rows + row]!;
          expect(code).toBeGreaterThanOrEqual(-127);
          const error = Math.abs(code * scales[row]! - values[row * columns + column]!);
          expect(error).toBeLessThanOrEqual((extreme / 254) * (1 + 1e-5) + 1e-43);
        }
      }
    }),
    { numRuns: 200 },
  );
});
