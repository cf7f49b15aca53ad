import { expect, test } from "vitest";

import { computeMmHash, hashCanonical } from "../../engine/multimodal/hasher.ts";
import type { CanonicalValue } from "../../engine/multimodal/hasher.ts";

const pairs: [CanonicalValue, CanonicalValue][] = [
  [{ ab: "c" }, { a: "bc" }],
  [{ size: { shortest_edge: 224 } }, { "size.shortest_edge": 224 }],
  [{ fps: [2, 4] }, { fps: { "0": 2, "1": 4 } }],
  [{ x: null }, { x: "" }],
  [{ size: {} }, {}],
  [{ size: [] }, { size: {} }],
  [{ x: 1 }, { x: true }],
  [{ x: 1 }, { x: "1" }],
  [{ x: "a" }, { x: Uint8Array.of(0x61) }],
  [["a", "b"], ["ab"]],
  [[[1], 2], [[1, 2]]],
  [0, -0],
];

test.for(pairs)("%j and %j have different hashes", ([left, right]) => {
  expect(hashCanonical(left)).not.toBe(hashCanonical(right));
});

test("the order of keys does not matter, and an undefined value is an absent one", () => {
  expect(hashCanonical({ a: 1, b: { c: 2, d: 3 } })).toBe(hashCanonical({ b: { d: 3, c: 2 }, a: 1 }));
  const withUndefined = { a: 1, b: undefined } as unknown as CanonicalValue;
  expect(hashCanonical(withUndefined)).toBe(hashCanonical({ a: 1 }));
});

test("model, options and bytes each change the hash of an item; equal inputs do not", async () => {
  const input = {
    modality: "image",
    modelContentHash: "model",
    processorOptions: { size: 224 },
    encodedBytes: Uint8Array.of(1, 2, 3),
  } as const;
  const hash = await computeMmHash(input);
  expect(hash).toMatch(/^[0-9a-f]{64}$/);
  expect(await computeMmHash({ ...input, encodedBytes: Uint8Array.of(9, 1, 2, 3).subarray(1) })).toBe(hash);
  expect(await computeMmHash({ ...input, modelContentHash: "other" })).not.toBe(hash);
  expect(await computeMmHash({ ...input, processorOptions: { size: 225 } })).not.toBe(hash);
  expect(await computeMmHash({ ...input, encodedBytes: Uint8Array.of(1, 2) })).not.toBe(hash);
});
