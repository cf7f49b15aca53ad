import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { fieldConfig, splitField, splitFields } from "../../../engine/multimodal/field-config.ts";
import type { FieldSlice } from "../../../engine/multimodal/field-config.ts";
import type { ItemTensor } from "../../../engine/multimodal/processed-item.ts";

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
  test("item i is row i, as a view", () => {
    const field = counting([3, 2, 2]);
    const items = splitField(field, fieldConfig.batched());
    expect(items[1]).toEqual(floats([2, 2], [5, 6, 7, 8]));
    expect(items[1]!.data.buffer).toBe(field.data.buffer);
  });

  test("items of different shapes are a list", () => {
    const list = [counting([2, 2]), counting([3, 2])];
    expect(splitField(list, fieldConfig.batched())).toEqual(list);
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
  test("items follow each other, and sizes give their lengths", () => {
    const field = counting([5, 2]);
    const config = fieldConfig.flatFromSizes(sizes(2n, 0n, 3n));
    const items = splitField(field, config);
    expect(items.map(({ shape }) => shape)).toEqual([
      [2, 2],
      [0, 2],
      [3, 2],
    ]);
    expect([...items[2]!.data]).toEqual([5, 6, 7, 8, 9, 10]);
  });

  test("items along another dimension are copied", () => {
    const field = counting([2, 5]);
    const config = fieldConfig.flatFromSizes(sizes(2n, 3n), 1);
    const items = splitField(field, config);
    expect(items).toEqual([floats([2, 2], [1, 2, 6, 7]), floats([2, 3], [3, 4, 5, 8, 9, 10])]);
  });

  test("slices may overlap, leave gaps and end beyond the field", () => {
    const config = fieldConfig.flat([
      { start: 0, end: 2 },
      { start: 1, end: 9 },
    ]);
    expect(splitField(counting([3]), config)).toEqual([floats([2], [1, 2]), floats([2], [2, 3])]);
  });

  test("a list is sliced tensor by tensor, and the tensors of one item are joined", () => {
    const list = [counting([1, 2]), counting([2, 2]), counting([1, 2])];
    const config = fieldConfig.flat([
      { start: 0, end: 2 },
      { start: 2, end: 3 },
    ]);
    expect(splitField(list, config)).toEqual([floats([3, 2], [1, 2, 1, 2, 3, 4]), floats([1, 2], [1, 2])]);
    expect(() => splitField([counting([1, 2]), counting([1, 3])], fieldConfig.flat([{ start: 0, end: 2 }]))).toThrow(
      /tensors of images have the shapes \[1, 3\] and \[1, 2\]/,
    );
  });

  test("sizes with more than one dimension are rejected with their shape", () => {
    expect(() => fieldConfig.flatFromSizes(counting([2, 3]))).toThrow(/one dimension; these have \[2, 3\]/);
  });
});

test("a shared field belongs to every item", () => {
  const field = counting([2]);
  const config = fieldConfig.shared(3);
  expect(splitField(field, config)).toEqual([field, field, field]);
});

describe("all fields of a batch", () => {
  test("are split together; fields without a config are dropped, configs without a field are skipped", () => {
    const fields = new Map([
      ["pixels", counting([2, 3])],
      ["sizes", sizes(1n, 2n)],
      ["extra", counting([7])],
    ]);
    const configs = { pixels: fieldConfig.batched(), sizes: fieldConfig.batched(), absent: fieldConfig.batched() };
    const [first, second] = splitFields(fields, configs);
    expect([...first!.keys()]).toEqual(["pixels", "sizes"]);
    expect(second!.get("pixels")).toEqual(floats([3], [4, 5, 6]));
  });

  test("with different numbers of items are rejected with both numbers", () => {
    const fields = new Map([
      ["pixels", counting([2, 3])],
      ["sizes", sizes(1n)],
    ]);
    const configs = { pixels: fieldConfig.batched(), sizes: fieldConfig.batched() };
    expect(() => splitFields(fields, configs)).toThrow(/pixels of 2, sizes of 1/);
  });
});

/** Each type with bits that arithmetic would not preserve: payloads of NaN, negative zero. */
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

function bytesOf({ data }: ItemTensor, start: number, end: number): string {
  const elements = data.subarray(start, end);
  return Buffer.from(elements.buffer, elements.byteOffset, elements.byteLength).toString("hex");
}

test("an item's elements are bit-identical to the field's, for any type, shape and config", () => {
  const property = fc.property(
    tensors,
    fc.infiniteStream(fc.integer({ min: 0, max: 3 })),
    fc.nat(),
    (field, cuts, at) => {
      const dimension = at % field.shape.length;
      const slices: FieldSlice[] = [];
      for (let start = 0; start < field.shape[dimension]!;) {
        const size = (cuts.next().value as number) + (slices.length > 8 ? 1 : 0);
        slices.push({ start, end: Math.min(start + size, field.shape[dimension]!) });
        start += size;
      }
      const product = (shape: readonly number[]): number => shape.reduce((total, size) => total * size, 1);
      const inner = product(field.shape.slice(dimension + 1));
      const outer = product(field.shape.slice(0, dimension));
      const items = splitField(field, fieldConfig.flat(slices, dimension));
      for (const [index, { start, end }] of slices.entries()) {
        const item = items[index]!;
        const length = (end - start) * inner;
        expect([item.elementType, item.shape]).toEqual([field.elementType, field.shape.with(dimension, end - start)]);
        for (let row = 0; row < outer; row += 1) {
          const from = (row * field.shape[dimension]! + start) * inner;
          expect(bytesOf(item, row * length, (row + 1) * length)).toBe(bytesOf(field, from, from + length));
        }
      }
      const rowLength = product(field.shape.slice(1));
      for (const [row, item] of splitField(field, fieldConfig.batched()).entries()) {
        expect(item.shape).toEqual(field.shape.slice(1));
        expect(bytesOf(item, 0, rowLength)).toBe(bytesOf(field, row * rowLength, (row + 1) * rowLength));
      }
      expect(splitField(field, fieldConfig.shared(2))).toEqual([field, field]);
    },
  );
  fc.assert(property, { numRuns: 1000 });
});
