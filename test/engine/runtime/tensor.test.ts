import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { DeviceMemory } from "../../../engine/runtime/device-memory.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { writeSumModel } from "./small-models.ts";

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
    expect(() => Tensor.fromTypedArray("float32", new Float32Array(6), shape!)).toThrow(
      expect.objectContaining({ code: "runtime_failed" }),
    );
  },
);

test("a scalar has shape [] and one element", () => {
  using tensor = Tensor.fromTypedArray("int64", BigInt64Array.of(7n), []);
  expect(tensor.byteLength).toBe(8);
  expect(tensor.data).toEqual(BigInt64Array.of(7n));
});

// A device's memory behaves as ONNX Runtime's allocation on the host does: an address, copies, bindings.
describe.for(["host", "device"] as const)("a view of a tensor on the %s", (place) => {
  let folder: TemporaryFolder;
  let session: Session;
  let memory: DeviceMemory;

  beforeAll(async () => {
    folder = await createTemporaryFolder();
    session = Session.load(await writeSumModel(folder.path), { device: "cpu", deviceId: 0, numThreads: 1 });
    memory = new DeviceMemory(session.handle, "cpu", "Cpu", 0);
  });

  afterAll(async () => {
    memory[Symbol.dispose]();
    session[Symbol.dispose]();
    await folder[Symbol.asyncDispose]();
  });

  const allocate = (shape: readonly number[]): Tensor<"float32"> =>
    place === "device" ? memory.allocate("float32", shape) : session.allocateTensor("float32", shape);

  /** Elements of `left` and `right` are added into `sum`. */
  function add(left: Tensor, right: Tensor, sum: Tensor): void {
    using binding = session.createBinding();
    binding.bindInput("left", left);
    binding.bindInput("right", right);
    binding.bindOutput("sum", sum);
    binding.run();
  }

  // By runs, since ONNX Runtime copies between the host and itself in no other way.
  function write(tensor: Tensor, values: Float32Array): void {
    using source = Tensor.fromTypedArray("float32", values, tensor.shape);
    using zeros = Tensor.fromTypedArray("float32", new Float32Array(values.length), tensor.shape);
    add(source, zeros, tensor);
  }

  function read(tensor: Tensor): Float32Array {
    const values = new Float32Array(tensor.byteLength / 4);
    using target = Tensor.fromTypedArray("float32", values, tensor.shape);
    using zeros = Tensor.fromTypedArray("float32", new Float32Array(values.length), tensor.shape);
    add(tensor, zeros, target);
    return values;
  }

  const counted = (length: number): Float32Array => Float32Array.from({ length }, (_, index) => index);

  test("shares its memory in both directions", () => {
    using whole = allocate([4, 64]);
    write(whole, counted(256));
    using row = whole.view(2 * 64, [1, 64]);
    expect(row.isOnDevice).toBe(place === "device");
    expect(read(row)[0]).toBe(128);
    write(row, new Float32Array(64).fill(-1));
    const contents = read(whole);
    expect([contents[127], contents[128], contents[191], contents[192]]).toEqual([127, -1, -1, 192]);
  });

  test("is read and written by a run in place", () => {
    using whole = allocate([3, 64]);
    write(whole, counted(192));
    using left = whole.view(0, [1, 64]);
    using right = whole.view(64, [1, 64]);
    using sum = whole.view(128, [1, 64]);
    add(left, right, sum);
    expect(read(whole).subarray(126, 131)).toEqual(Float32Array.of(126, 127, 64, 66, 68));
  });

  test("can be a part of a view, and outlive it", () => {
    using whole = allocate([4, 64]);
    write(whole, counted(256));
    const half = whole.view(128, [2, 64]);
    using quarter = half.view(64, [1, 64]);
    half[Symbol.dispose]();
    expect(read(quarter)[0]).toBe(192);
  });

  test.for([
    [193, [64]],
    [-64, [64]],
    [0, [257]],
    [0.5, [4]],
  ] as const)("does not begin at element %d with shape %j, beyond the tensor", ([firstElement, shape]) => {
    using whole = allocate([4, 64]);
    expect(() => whole.view(firstElement, shape)).toThrow(
      expect.objectContaining({ code: "runtime_failed", message: expect.stringContaining("256 elements") }),
    );
  });
});
