import { describe, expect, test } from "vitest";

import { knownImageCodec, sourceCacheKey } from "../../../../engine/images/source-cache.ts";
import {
  divideItem,
  embeddingsCodec,
  itemPlacementCodec,
  itemTensorsCodec,
  toSharedItem,
} from "../../../../engine/multimodal/caches/divided-items.ts";
import type { Embeddings } from "../../../../engine/multimodal/caches/divided-items.ts";
import type { ProcessedItem } from "../../../../engine/multimodal/processed-item.ts";

const key = "f".repeat(64);

function shared(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.length));
  copy.set(bytes);
  return copy;
}

function embeddingsOf(...numbers: number[]): Embeddings {
  return { elementType: "float32", shape: [numbers.length / 2, 2], data: Float32Array.from(numbers) };
}

describe("processed items", () => {
  // Views of a batch, like a processor's output.
  const batch = Float32Array.from({ length: 100 }, (_, index) => index / 7);
  const item: ProcessedItem = {
    tensors: new Map([
      ["pixel_values", { elementType: "float32", shape: [2, 3, 12], data: batch.subarray(12, 84) }],
      ["pixel_mask", { elementType: "bool", shape: [3], data: Uint8Array.of(1, 0, 1) }],
      ["image_grid_thw", { elementType: "int64", shape: [3], data: BigInt64Array.of(1n, 2n, 3n) }],
    ]),
    promptUpdates: [
      {
        mode: "replacement",
        target: { kind: "tokens", tokenIds: [7] },
        content: { full: [7, 8, 7], isEmbed: [true, false, true] },
      },
      {
        mode: "insertion",
        target: { kind: "prefix", sequence: { kind: "text", text: "§ é" } },
        content: { full: [7], isEmbed: null },
      },
      { mode: "insertion", target: { kind: "start" }, content: { full: [], isEmbed: null } },
    ],
  };

  test("survive the split into two values: pixels, and prompt updates with all small tensors", () => {
    const { placement, pixels } = divideItem(item);
    expect([...pixels.keys()]).toEqual(["pixel_values"]);
    expect([...placement.tensors.keys()]).toEqual(["pixel_mask", "image_grid_thw"]);
    expect(itemPlacementCodec.decode(key, shared(itemPlacementCodec.encode(key, placement)))).toEqual(placement);
    expect(itemTensorsCodec.decode(key, shared(itemTensorsCodec.encode(key, pixels)))).toEqual(pixels);
  });

  test("are copied out of their batch into memory that messages share", () => {
    const copy = toSharedItem(item);
    expect(copy).toEqual(item);
    for (const { data } of copy.tensors.values()) expect(data.buffer).toBeInstanceOf(SharedArrayBuffer);
    const sent = structuredClone(copy);
    (copy.tensors.get("pixel_values")!.data as Float32Array)[0] = 99;
    expect(sent.tensors.get("pixel_values")!.data[0]).toBe(99);
    expect(batch[12]).toBe(Math.fround(12 / 7));
  });
});

describe("embeddings", () => {
  test("return as single precision, rounded to half, in memory that threads share", () => {
    const embeddings = embeddingsOf(0, -0, 1 / 3, 65_504, -2.5, 6e-8);
    const bytes = embeddingsCodec.encode(key, embeddings);
    const decoded = embeddingsCodec.decode(key, shared(bytes))!;
    expect(decoded.data.buffer).toBeInstanceOf(SharedArrayBuffer);
    expect(decoded).toEqual({
      ...embeddings,
      data: Float32Array.from(embeddings.data, (number) => Math.f16round(number)),
    });
  });

  test.for([65_520, -1e30, Number.POSITIVE_INFINITY])("keep single precision if %d is among them", (large) => {
    const embeddings = embeddingsOf(1 / 3, large);
    expect(embeddingsCodec.decode(key, shared(embeddingsCodec.encode(key, embeddings)))).toEqual(embeddings);
  });

  test("take half the bytes in the store", () => {
    const embeddings = embeddingsOf(...Array<number>(10_000).fill(0.1));
    expect(embeddingsCodec.encode(key, embeddings).length).toBeLessThan(20_500);
    expect(embeddingsCodec.byteLengthOf(embeddings)).toBe(40_000);
  });
});

describe("sources", () => {
  test("return with validator and content hash", () => {
    const known = { validator: '"3858f62230ac3c915f300c664312c63f-1"', contentHash: "0".repeat(64) };
    expect(knownImageCodec.decode(key, knownImageCodec.encode(key, known))).toEqual(known);
  });

  test("belong to a tenant, and their keys show no reference", () => {
    const keys = [
      sourceCacheKey("s3://a/b", null),
      sourceCacheKey("s3://a/b", ""),
      sourceCacheKey("s3://a/b", "tenant"),
      sourceCacheKey("s3://a/bt", "enant"),
    ];
    expect(new Set(keys).size).toBe(4);
    for (const hash of keys) expect(hash).toMatch(/^[0-9a-f]{64}$/);
  });
});
