import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { fieldConfig, mergeField, splitField, splitFields } from "../../engine/multimodal/field-config.ts";
import type { FieldConfig, FieldSlice } from "../../engine/multimodal/field-config.ts";
import type { ItemTensor } from "../../engine/multimodal/processed-item.ts";

function floats(shape: readonly number[], values: Iterable<number>): ItemTensor {
  return { elementType: "float32", shape, data: Float32Array.from(values) };
}

function counting(shape: readonly number[]): ItemTensor {
  const length = shape.reduce((product, size) => product * size, 1);
  return floats(
    shape,
    Array.from({ length }, (_, index) => index + 1),
  );
}

const sizes = (...values: bigint[]): ItemTensor => ({
  elementType: "int64",
  shape: [values.length],
  data: BigInt64Array.from(values),
});

describe("batched", () => {
  test("item i is row i, as a view, and rows of one shape are stacked again", () => {
    const field = counting([3, 2, 2]);
    const items = splitField(field, fieldConfig.batched());
    expect(items[1]).toEqual(floats([2, 2], [5, 6, 7, 8]));
    expect(items[1].data.buffer).toBe(field.data.buffer);
    expect(mergeField(items, fieldConfig.batched())).toEqual(field);
    expect(mergeField([items[2]], fieldConfig.batched())).toEqual(floats([1, 2, 2], [9, 10, 11, 12]));
  });

  test("items of different shapes stay a list", () => {
    const list = [counting([2, 2]), counting([3, 2])];
    expect(splitField(list, fieldConfig.batched())).toEqual(list);
    expect(mergeField(list, fieldConfig.batched())).toEqual(list);
  });

  test("a row may be a single number", () => {
    expect(splitField(sizes(7n, 8n), fieldConfig.batched())[1]).toEqual({
      elementType: "int64",
      shape: [],
      data: BigInt64Array.of(8n),
    });
  });
});

describe("flat", () => {
  test("items lie one after the other, sizes say how long each is", () => {
    const field = counting([5, 2]);
    const config = fieldConfig.flatFromSizes(sizes(2n, 0n, 3n));
    const items = splitField(field, config);
    expect(items.map(({ shape }) => shape)).toEqual([
      [2, 2],
      [0, 2],
      [3, 2],
    ]);
    expect([...items[2].data]).toEqual([5, 6, 7, 8, 9, 10]);
    expect(mergeField(items, config)).toEqual(field);
  });

  test("along another dimension items are copied out and in", () => {
    const field = counting([2, 5]);
    const config = fieldConfig.flatFromSizes(sizes(2n, 3n), 1);
    const items = splitField(field, config);
    expect(items).toEqual([floats([2, 2], [1, 2, 6, 7]), floats([2, 3], [3, 4, 5, 8, 9, 10])]);
    expect(mergeField(items, config)).toEqual(field);
  });

  test("slices may overlap, leave gaps and end beyond the field", () => {
    const config = fieldConfig.flat([
      { start: 0, end: 2 },
      { start: 1, end: 9 },
    ]);
    expect(splitField(counting([3]), config)).toEqual([floats([2], [1, 2]), floats([2], [2, 3])]);
  });

  test("items that differ in another dimension are filled up with zeros", () => {
    const merged = mergeField([counting([1, 2]), counting([2, 1])], fieldConfig.flat([]));
    expect(merged).toEqual(floats([3, 2], [1, 2, 1, 0, 2, 0]));
    const deep = mergeField([counting([1, 2, 1]), counting([1, 1, 2])], fieldConfig.flat([]));
    expect(deep).toEqual(floats([2, 2, 2], [1, 0, 2, 0, 1, 2, 0, 0]));
  });

  test("a list is sliced tensor by tensor", () => {
    const list = [counting([1, 2]), counting([2, 2]), counting([1, 2])];
    const config = fieldConfig.flat([
      { start: 0, end: 2 },
      { start: 2, end: 3 },
    ]);
    expect(splitField(list, config).map(({ shape }) => shape)).toEqual([
      [3, 2],
      [1, 2],
    ]);
  });

  test("sizes of more than one dimension are refused with their shape", () => {
    expect(() => fieldConfig.flatFromSizes(counting([2, 3]))).toThrow(/one dimension; these have \[2, 3\]/);
  });
});

test("a shared field is every item's, and one again", () => {
  const field = counting([2]);
  const config = fieldConfig.shared(3);
  expect(splitField(field, config)).toEqual([field, field, field]);
  expect(mergeField([field, field, field], config)).toBe(field);
});

describe("all fields of a batch", () => {
  test("are split together; those without a config are dropped, configs without a field skipped", () => {
    const fields = new Map([
      ["pixels", counting([2, 3])],
      ["sizes", sizes(1n, 2n)],
      ["extra", counting([7])],
    ]);
    const configs = { pixels: fieldConfig.batched(), sizes: fieldConfig.batched(), absent: fieldConfig.batched() };
    const [first, second] = splitFields(fields, configs);
    expect([...first.keys()]).toEqual(["pixels", "sizes"]);
    expect(second.get("pixels")).toEqual(floats([3], [4, 5, 6]));
  });

  test("of different numbers of items are refused with both", () => {
    const fields = new Map([
      ["pixels", counting([2, 3])],
      ["sizes", sizes(1n)],
    ]);
    const configs = { pixels: fieldConfig.batched(), sizes: fieldConfig.batched() };
    expect(() => splitFields(fields, configs)).toThrow(/pixels of 2, sizes of 1/);
  });
});

/** Each type with bits that arithmetic would not keep: payloads of NaN, negative zero. */
const tensors: fc.Arbitrary<ItemTensor> = fc
  .record({
    shape: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 3 }),
    elementType: fc.constantFrom("float32", "float16", "int64", "int32", "uint8", "bool"),
    seed: fc.integer({ min: 0, max: 255 }),
  })
  .map(({ shape, elementType, seed }) => {
    const ArrayOf = { float32: Float32Array, float16: Float16Array, int64: BigInt64Array, int32: Int32Array } as const;
    const Type = elementType in ArrayOf ? ArrayOf[elementType as keyof typeof ArrayOf] : Uint8Array;
    const length = shape.reduce((product, size) => product * size, 1);
    const bytes = Uint8Array.from({ length: length * Type.BYTES_PER_ELEMENT }, (_, index) => (seed + index * 37) % 256);
    return { elementType, shape, data: new Type(bytes.buffer) } as ItemTensor;
  });

function bytesOf({ data }: ItemTensor): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("hex");
}

test("what is split and merged again is the same, bit by bit, whatever the type, shape and config", () => {
  const property = fc.property(
    tensors,
    fc.infiniteStream(fc.integer({ min: 0, max: 3 })),
    fc.nat(),
    (field, cuts, at) => {
      const dimension = at % field.shape.length;
      const slices: FieldSlice[] = [];
      for (let start = 0; start < field.shape[dimension];) {
        const size = (cuts.next().value as number) + (slices.length > 8 ? 1 : 0);
        slices.push({ start, end: Math.min(start + size, field.shape[dimension]) });
        start += size;
      }
      const configs: FieldConfig[] = [
        fieldConfig.batched(),
        fieldConfig.flat(slices, dimension),
        fieldConfig.shared(2),
      ];
      for (const config of configs) {
        const items = splitField(field, config);
        if (items.length === 0) continue;
        const merged = mergeField(items, config) as ItemTensor;
        expect([merged.elementType, merged.shape]).toEqual([field.elementType, field.shape]);
        expect(bytesOf(merged)).toBe(bytesOf(field));
      }
    },
  );
  fc.assert(property, { numRuns: 1000 });
});
