import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { computeMmHash, contentHashOf, hashCanonical } from "../../../engine/multimodal/hasher.ts";
import type { CanonicalValue, MultiModalHashInput } from "../../../engine/multimodal/hasher.ts";

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

test("the order of keys does not matter, and an undefined value equals an absent one", () => {
  expect(hashCanonical({ a: 1, b: { c: 2, d: 3 } })).toBe(hashCanonical({ b: { d: 3, c: 2 }, a: 1 }));
  const withUndefined = { a: 1, b: undefined } as unknown as CanonicalValue;
  expect(hashCanonical(withUndefined)).toBe(hashCanonical({ a: 1 }));
});

const content = (contentHash: string): MultiModalHashInput["item"] => ({ kind: "content", contentHash });
const uuid = (tenant: string, name: string): MultiModalHashInput["item"] => ({ kind: "uuid", tenant, uuid: name });
const input: MultiModalHashInput = {
  modality: "image",
  modelContentHash: "model",
  processorOptions: { size: 224 },
  item: content("123"),
  cacheSalt: null,
};

test("equal bytes have equal hashes, wherever they are in memory", async () => {
  const hash = await contentHashOf(Uint8Array.of(1, 2, 3));
  expect(hash).toMatch(/^[0-9a-f]{64}$/);
  expect(await contentHashOf(Uint8Array.of(9, 1, 2, 3).subarray(1))).toBe(hash);
  expect(await contentHashOf(Uint8Array.of(1, 2))).not.toBe(hash);
});

test.for([0, 1, 32_767, 32_768, 1_000_000])("%i bytes are hashed with SHA-256 on any thread", async (length) => {
  const bytes = new Uint8Array(length).fill(7);
  expect(await contentHashOf(bytes)).toBe(createHash("sha256").update(bytes).digest("hex"));
});

test("equal items have equal hashes", () => {
  expect(computeMmHash(input)).toMatch(/^[0-9a-f]{64}$/);
  expect(computeMmHash({ ...input, processorOptions: { size: 224 } })).toBe(computeMmHash(input));
  expect(computeMmHash({ ...input, item: uuid("t", "u") })).toBe(computeMmHash({ ...input, item: uuid("t", "u") }));
});

test("everything that distinguishes items changes their hash", () => {
  const others: MultiModalHashInput[] = [
    input,
    { ...input, modality: "image_embeds" },
    { ...input, modelContentHash: "other" },
    { ...input, processorOptions: { size: 225 } },
    { ...input, processorOptions: { size: 224, do_resize: false } },
    { ...input, item: content("12") },
    { ...input, item: content("") },
    { ...input, cacheSalt: "" },
    { ...input, cacheSalt: "salt" },
    { ...input, item: uuid("", "a") },
    { ...input, item: uuid("a", "") },
    { ...input, item: uuid("a", "b") },
    { ...input, item: uuid("b", "a") },
    { ...input, item: uuid("", "ab") },
    { ...input, item: uuid("", "a"), cacheSalt: "salt" },
    { ...input, item: uuid("", "a"), processorOptions: {} },
  ];
  const hashes = others.map(computeMmHash);
  expect(new Set(hashes).size).toBe(others.length);
});

test("the recorded pixels belong to one version of the hashes", () => {
  const recorded = createHash("sha256");
  for (const name of ["decoded.json", "pixel-values.json", "resampled.json"]) {
    recorded.update(readFileSync(new URL(`../../fixtures/pixels/${name}`, import.meta.url)));
  }
  // If a picture that is already recorded has other pixels, PROCESSING_VERSION changes too.
  expect({ pixels: recorded.digest("hex").slice(0, 16), hash: computeMmHash(input).slice(0, 16) }).toEqual({
    pixels: "31effc61b62bb88e",
    hash: "72aabeb7d54063be",
  });
});
