import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { decodeRecord, encodeRecord } from "../../../../engine/multimodal/caches/record-codec.ts";
import type { CacheRecord, JsonValue } from "../../../../engine/multimodal/caches/record-codec.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { bytesPerElement, typedArrayOver } from "../../../../engine/runtime/element-type.ts";
import type { TensorElementType } from "../../../../engine/runtime/element-type.ts";

const elementTypes = ["float32", "float16", "int64", "int32", "int8", "uint8", "bool"] as const;

function tensorOf(elementType: TensorElementType, shape: readonly number[], seed: number): ItemTensor {
  const length = shape.reduce((product, size) => product * size, 1) * bytesPerElement(elementType);
  const bytes = Uint8Array.from({ length }, (_, index) => (index * 29 + seed) & 127);
  return { elementType, shape, data: typedArrayOver(elementType, bytes.buffer) } as ItemTensor;
}

const tensors = fc
  .uniqueArray(
    fc.tuple(
      fc.string({ maxLength: 12 }),
      fc
        .tuple(
          fc.constantFrom(...elementTypes),
          fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 4 }),
          fc.nat(100),
        )
        .map(([elementType, shape, seed]) => tensorOf(elementType, shape, seed)),
    ),
    { maxLength: 4, selector: ([name]) => name },
  )
  .map((entries) => new Map(entries));
const details = fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value)) as JsonValue);
const records = fc.record({ tensors, details });
const key = "a".repeat(64);

function bytesOf({ data }: ItemTensor): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

function expectEqual(decoded: CacheRecord | null, record: CacheRecord): void {
  expect(decoded?.details).toEqual(record.details);
  expect([...(decoded?.tensors.keys() ?? [])]).toEqual([...record.tensors.keys()]);
  for (const [name, tensor] of record.tensors) {
    const back = decoded!.tensors.get(name)!;
    expect(back).toMatchObject({ elementType: tensor.elementType, shape: tensor.shape });
    expect(back.data.constructor).toBe(tensor.data.constructor);
    expect(Buffer.compare(bytesOf(back), bytesOf(tensor))).toBe(0);
  }
}

const sample: CacheRecord = {
  tensors: new Map([
    ["pixel_values", tensorOf("float32", [3, 4, 5], 1)],
    ["image_grid_thw", tensorOf("int64", [3], 2)],
  ]),
  details: { updates: [{ full: [32000, 32000], isEmbed: null }] },
};

describe("the codec of cached values", () => {
  test("returns every record unchanged, from aligned and misaligned bytes", () => {
    const property = fc.property(records, fc.nat(63), (record, offset) => {
      const encoded = encodeRecord(key, record);
      expectEqual(decodeRecord(key, encoded), record);
      const shifted = new Uint8Array(encoded.length + offset).subarray(offset);
      shifted.set(encoded);
      expectEqual(decodeRecord(key, shifted), record);
    });
    expect(() => fc.assert(property)).not.toThrow();
  });

  test("reads tensors in place, also in memory that threads share", () => {
    const encoded = encodeRecord(key, sample);
    const shared = new Uint8Array(new SharedArrayBuffer(encoded.length));
    shared.set(encoded);
    const decoded = decodeRecord(key, shared)!;
    for (const { data } of decoded.tensors.values()) expect(data.buffer).toBe(shared.buffer);
    expectEqual(decoded, sample);
  });

  test("rejects every change of a single byte", () => {
    const encoded = encodeRecord(key, sample);
    for (let index = 0; index < encoded.length; index++) {
      for (const change of [1, 0x80, 0xff]) {
        encoded[index]! ^= change;
        expect(decodeRecord(key, encoded)).toBeNull();
        encoded[index]! ^= change;
      }
    }
    expectEqual(decodeRecord(key, encoded), sample);
  });

  test("rejects any single-byte change of any record", () => {
    fc.assert(
      fc.property(records, fc.nat(), fc.integer({ min: 1, max: 255 }), (record, position, change) => {
        const encoded = encodeRecord(key, record);
        encoded[position % encoded.length]! ^= change;
        expect(decodeRecord(key, encoded)).toBeNull();
      }),
    );
  });

  test("rejects truncated records and trailing bytes", () => {
    const encoded = encodeRecord(key, sample);
    for (let length = 0; length < encoded.length; length++) {
      expect(decodeRecord(key, encoded.subarray(0, length))).toBeNull();
    }
    expect(decodeRecord(key, Buffer.concat([encoded, Buffer.alloc(1)]))).toBeNull();
  });

  test("rejects foreign bytes and values of another key", () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => decodeRecord(key, bytes) === null));
    expect(decodeRecord(key, Buffer.from(JSON.stringify({ key, tensors: [], details: null })))).toBeNull();
    expect(decodeRecord("b".repeat(64), encodeRecord(key, sample))).toBeNull();
  });
});
