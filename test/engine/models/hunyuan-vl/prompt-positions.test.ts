import { expect, test } from "vitest";

import { promptPositions } from "../../../../engine/models/hunyuan-vl/prompt-positions.ts";

test("embeddings of squares and row ends have the column, row and number of their picture", () => {
  // A picture of 1 x 2 squares, a token of text, and one of 2 x 1.
  const { axes, next } = promptPositions(12, [
    { offset: 0, rows: 1, columns: 2 },
    { offset: 6, rows: 2, columns: 1 },
  ]);
  expect([...axes.subarray(0, 12)]).toEqual([0, 0, 1, 2, 4, 5, 6, 0, 1, 0, 1, 11]);
  expect([...axes.subarray(12, 24)]).toEqual([0, 0, 0, 0, 4, 5, 6, 0, 0, 1, 1, 11]);
  expect([...axes.subarray(24)]).toEqual([0, 0, 0, 0, 4, 5, 6, 1, 1, 1, 1, 11]);
  expect(next).toBe(12);
});
