import { expect, test } from "vitest";

import type { KvShape } from "../../../engine/kv/memory-plan.ts";
import { planBlocks } from "../../../engine/kv/plan-blocks.ts";

/** 2 * 4 layers * 2 heads * 32 numbers * 4 bytes = 2 KiB for each token, 32 KiB for a block of 16. */
const decoder: KvShape = { numLayers: 4, numKvHeads: 2, headDim: 32, kvElementType: "float32" };
const blockBytes = 32 * 1024;
const options = { blockSize: 16, maxNumSequences: 4, maxLen: 100, takesAllRoom: false };

test("has blocks for all sequences at full length, and one of scratch memory", () => {
  const capacity = planBlocks(decoder, { ...options, roomBytes: 1e9 });
  expect(capacity).toEqual({ blockSize: 16, numBlocks: 4 * 7 + 1, numTokens: 4 * 7 * 16 });
});

test("has fewer where memory is short, and says how many tokens they hold", () => {
  const capacity = planBlocks(decoder, { ...options, roomBytes: 10.9 * blockBytes });
  expect(capacity).toEqual({ blockSize: 16, numBlocks: 10, numTokens: 144 });
});

test("takes all the memory of a GPU", () => {
  expect(planBlocks(decoder, { ...options, roomBytes: 500 * blockBytes, takesAllRoom: true }).numBlocks).toBe(500);
});

test("has the number of blocks that is set", () => {
  expect(planBlocks(decoder, { ...options, roomBytes: 0, numBlocks: 12 }).numBlocks).toBe(12);
});

test.for([
  { roomBytes: 7 * blockBytes, advice: "A sequence of 96 tokens would fit." },
  { roomBytes: -5, advice: "Not one token would fit." },
])("rejects a cache of $roomBytes bytes: $advice", ({ roomBytes, advice }) => {
  expect(() => planBlocks(decoder, { ...options, roomBytes })).toThrow(advice);
});
