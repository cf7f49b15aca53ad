import { expect, test } from "vitest";

import { BlockHashes } from "../../../engine/kv/block-hashes.ts";
import type { SequenceTokens } from "../../../engine/scheduler/sequence.ts";

const base: SequenceTokens = {
  promptTokenIds: [1, 2, 3, 4, 5, 6, 7, 8],
  outputTokenIds: [],
  images: [],
  positions: null,
  cacheSalt: null,
  adapterId: 0,
};

function hashesOf(tokens: Partial<SequenceTokens>, numBlocks = 2): string[] {
  const hashes = new BlockHashes({ ...base, ...tokens }, 4);
  return Array.from({ length: numBlocks }, (_, index) => hashes.at(index));
}

test("equal tokens have equal hashes, from prompt or output", () => {
  expect(hashesOf({})).toEqual(hashesOf({ promptTokenIds: [1, 2, 3, 4, 5], outputTokenIds: [6, 7, 8] }));
});

test("a block depends on every block before it", () => {
  const [first, second] = hashesOf({ promptTokenIds: [9, 2, 3, 4, 5, 6, 7, 8] });
  expect(first).not.toBe(hashesOf({})[0]);
  expect(second).not.toBe(hashesOf({})[1]);
});

test.for([
  { name: "salt", tokens: { cacheSalt: "tenant" }, changed: [true, true] },
  { name: "salt that looks like none", tokens: { cacheSalt: "null" }, changed: [true, true] },
  { name: "image in the first block", tokens: { images: [image("a", 1, 2)] }, changed: [true, true] },
  { name: "image over both blocks", tokens: { images: [image("a", 2, 4)] }, changed: [true, true] },
  { name: "image in the second block", tokens: { images: [image("a", 5, 2)] }, changed: [false, true] },
  { name: "image behind the blocks", tokens: { images: [image("a", 8, 2)] }, changed: [false, false] },
])("$name: the hashes of the blocks change as they should", ({ tokens, changed }) => {
  const plain = hashesOf({});
  expect(hashesOf(tokens).map((hash, index) => hash !== plain[index])).toEqual(changed);
});

test("different images, or one image at different places, have different hashes", () => {
  const variants = [[image("a", 1, 2)], [image("b", 1, 2)], [image("a", 2, 2)], [image("a", 0, 1), image("a", 1, 2)]];
  expect(new Set(variants.map((images) => hashesOf({ images })[0])).size).toBe(variants.length);
});

test("a block depends on positions that are not its indices, and on those before it", () => {
  const plain = hashesOf({});
  // Axes of 8 tokens, of which the third to the sixth are a picture of two rows.
  const rows = [0, 1, 2, 2, 3, 3, 4, 5];
  const columns = [0, 1, 2, 3, 2, 3, 4, 5];
  const wide = { axes: Int32Array.from([0, 1, 2, 2, 2, 2, 4, 5, ...rows, ...columns]), next: 6 };
  const tall = { axes: Int32Array.from([0, 1, 2, 2, 2, 2, 4, 5, ...columns, ...rows]), next: 6 };
  const line = [0, 1, 2, 3, 4, 5, 6, 7];
  const none = { axes: Int32Array.from([...line, ...line, ...line]), next: 8 };
  expect(hashesOf({ positions: none })).toEqual(plain);
  const first = new Set([plain, hashesOf({ positions: wide }), hashesOf({ positions: tall })].map(([hash]) => hash));
  const second = new Set([plain, hashesOf({ positions: wide }), hashesOf({ positions: tall })].map(([, hash]) => hash));
  expect([first.size, second.size]).toEqual([3, 3]);
  const inOutput = { promptTokenIds: [1, 2, 3, 4], outputTokenIds: [5, 6, 7, 8] };
  const prompt = { axes: Int32Array.from([0, 1, 2, 2, 0, 1, 2, 2, 0, 1, 2, 3]), next: 4 };
  expect(hashesOf({ ...inOutput, positions: prompt })[0]).not.toBe(plain[0]);
});

function image(mmHash: string, offset: number, length: number) {
  return { mmHash, offset, length };
}
