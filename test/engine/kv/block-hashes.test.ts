import { expect, test } from "vitest";

import { BlockHashes } from "../../../engine/kv/block-hashes.ts";
import type { SequenceTokens } from "../../../engine/scheduler/sequence.ts";

const base: SequenceTokens = {
  promptTokenIds: [1, 2, 3, 4, 5, 6, 7, 8],
  outputTokenIds: [],
  images: [],
  cacheSalt: null,
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

function image(mmHash: string, offset: number, length: number) {
  return { mmHash, offset, length };
}
