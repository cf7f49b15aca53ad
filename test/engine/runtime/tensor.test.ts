import { expect, test } from "vitest";
import { Tensor } from "../../../engine/runtime/tensor.ts";

test("a tensor is a view of the caller's array, not a copy", () => {
  const numbers = Float32Array.of(0, 1, 2, 3, 4, 5);
  using tensor = Tensor.fromTypedArray("float32", numbers.subarray(2, 5), [3]);
  numbers[3] = 30;
  expect(tensor.data).toEqual(Float32Array.of(2, 30, 4));
  tensor.data[0] = 20;
  expect(numbers[2]).toBe(20);
  expect(tensor.isOnDevice).toBe(false);
});

test("copies to and from a tensor on the host do not alias its array", () => {
  using tensor = Tensor.fromTypedArray("int32", Int32Array.of(1, 2, 3), [3]);
  const copy = tensor.copyToHost();
  tensor.copyFrom(Int32Array.of(4, 5, 6));
  expect(copy).toEqual(Int32Array.of(1, 2, 3));
  expect(tensor.data).toEqual(Int32Array.of(4, 5, 6));
});

test("an array whose size does not fit the shape is rejected with both numbers", () => {
  expect(() => Tensor.fromTypedArray("float32", new Float32Array(5), [2, 3])).toThrow(
    expect.objectContaining({
      code: "runtime_failed",
      message: "A float32 tensor of shape [2, 3] has 24 bytes; the array has 20.",
    }),
  );
  using tensor = Tensor.fromTypedArray("float32", new Float32Array(6), [2, 3]);
  expect(() => tensor.copyFrom(new Float32Array(7))).toThrow(
    expect.objectContaining({ code: "runtime_failed", message: expect.stringMatching(/24 bytes.*28/) }),
  );
});

test.for([[[-1, -6]], [[1.5, 4]], [[Number.NaN]], [[2 ** 40, 2 ** 40]], [Array.from({ length: 17 }, () => 1)]])(
  "%j is not a shape",
  ([shape]) => {
    expect(() => Tensor.fromTypedArray("float32", new Float32Array(6), shape)).toThrow(
      expect.objectContaining({ code: "runtime_failed" }),
    );
  },
);

test("a scalar has shape [] and one element", () => {
  using tensor = Tensor.fromTypedArray("int64", BigInt64Array.of(7n), []);
  expect(tensor.byteLength).toBe(8);
  expect(tensor.data).toEqual(BigInt64Array.of(7n));
});
