/** On the CPU, whose tensors the graphs read and write as those of WebGPU. */
import { expect, test } from "vitest";

import { GraphPool } from "../../../engine/vision/graph-pool.ts";

const width = 3;

function rowsOf(firstRow: number, numRows: number, value: number): Float32Array {
  return Float32Array.from({ length: numRows * width }, (_, index) => 100 * value + firstRow + index);
}

test("rows of images and of the run are gathered in the order that a chunk has them", async () => {
  using pool = new GraphPool("cpu", { deviceId: 0 }, { width, numRows: 10, maxRunRows: 4 });
  const first = pool.take(4)!;
  const second = pool.take(5)!;
  expect(pool.take(2)).toBeNull();
  pool.write(first, (target) => {
    expect(target.shape).toEqual([1, 4, width]);
    target.copyFrom(rowsOf(0, 4, 1));
  });
  pool.write(second, (target) => target.copyFrom(rowsOf(0, 5, 2)));
  const hostRow = pool.placeForRun(rowsOf(0, 2, 3));
  const wanted = [second.firstRow + 4, hostRow + 1, first.firstRow, hostRow];
  using gathered = pool.gather(BigInt64Array.from(wanted, BigInt));
  const row = (numbers: Float32Array, index: number): number[] => [
    ...numbers.subarray(index * width, (index + 1) * width),
  ];
  expect([...gathered.data]).toEqual([
    ...row(rowsOf(0, 5, 2), 4),
    ...row(rowsOf(0, 2, 3), 1),
    ...row(rowsOf(0, 4, 1), 0),
    ...row(rowsOf(0, 2, 3), 0),
  ]);
  // Another image takes the rows of the first, and those of the second stay.
  pool.release(first);
  const third = pool.take(4)!;
  expect(third).toEqual(first);
  pool.write(third, (target) => target.copyFrom(rowsOf(0, 4, 4)));
  for (const [rows, value] of [
    [third, 4],
    [second, 2],
  ] as const) {
    const read = new Float32Array(rows.numRows * width);
    await pool.read(rows, read);
    expect(read).toEqual(rowsOf(0, rows.numRows, value));
  }
});

test("a pool is no larger than a buffer that every adapter binds", () => {
  const wide = 2 ** 20;
  using pool = new GraphPool("cpu", { deviceId: 0 }, { width: wide, numRows: 100, maxRunRows: 2 });
  expect(pool.take(31)).toBeNull();
  expect(pool.take(30)).toEqual({ firstRow: 0, numRows: 30 });
});
