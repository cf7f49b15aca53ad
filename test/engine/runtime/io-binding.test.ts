import { expect, test } from "vitest";

import type { TensorData, TensorElementType } from "../../../engine/runtime/element-type.ts";
import { Session } from "../../../engine/runtime/session.ts";
import type { SessionOptions } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { decode, decodeInOneRun } from "./attention-steps.ts";
import { writeAttentionModel, writeIdentityModel, writeSumModel } from "./small-models.ts";

const options: SessionOptions = { device: "cpu", deviceId: 0, numThreads: 1 };

async function loadSumModel(): Promise<Session> {
  await using folder = await createTemporaryFolder();
  return Session.load(await writeSumModel(folder.path), options);
}

test("a run reads the current content of the bound arrays", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  const numbers = Float32Array.of(1, 2);
  using tensor = Tensor.fromTypedArray("float32", numbers, [1, 2]);
  using sum = session.allocateTensor("float32", [1, 2]);
  binding.bindInput("left", tensor);
  binding.bindInput("right", tensor);
  binding.bindOutput("sum", sum);
  binding.run();
  expect(sum.data).toEqual(Float32Array.of(2, 4));
  numbers[0] = 10;
  binding.run();
  expect(sum.data).toEqual(Float32Array.of(20, 4));
  expect(binding.output("sum")).toBe(sum);
});

test("tensors over different parts of one array are read and written in place", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  const numbers = Float32Array.from({ length: 12 }, (_, index) => index);
  using left = Tensor.fromTypedArray("float32", numbers.subarray(1, 5), [2, 2]);
  using right = Tensor.fromTypedArray("float32", numbers.subarray(3, 7), [2, 2]);
  using sum = Tensor.fromTypedArray("float32", numbers.subarray(8, 12), [2, 2]);
  binding.bindInput("left", left);
  binding.bindInput("right", right);
  binding.bindOutput("sum", sum);
  binding.run();
  expect(numbers).toEqual(Float32Array.of(0, 1, 2, 3, 4, 5, 6, 7, 4, 6, 8, 10));
});

test("binding an input again replaces it", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  using one = Tensor.fromTypedArray("float32", Float32Array.of(1), [1, 1]);
  using five = Tensor.fromTypedArray("float32", Float32Array.of(5), [1, 1]);
  using sum = session.allocateTensor("float32", [1, 1]);
  binding.bindInput("left", one);
  binding.bindInput("right", one);
  binding.bindOutput("sum", sum);
  binding.run();
  binding.bindInput("right", five);
  binding.run();
  expect(sum.data).toEqual(Float32Array.of(6));
});

test("an output that ONNX Runtime allocates gets a new shape in every run, including zero rows", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  binding.bindOutputToDevice("sum");
  for (const numRows of [2, 0, 3]) {
    using tensor = Tensor.fromTypedArray("float32", new Float32Array(numRows * 2).fill(4), [numRows, 2]);
    binding.bindInput("left", tensor);
    binding.bindInput("right", tensor);
    binding.run();
    using sum = binding.output("sum");
    expect(sum.shape).toEqual([numRows, 2]);
    expect(sum.data).toEqual(new Float32Array(numRows * 2).fill(8));
  }
});

test("an output of one run is not changed by the next", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  using one = Tensor.fromTypedArray("float32", Float32Array.of(1), [1, 1]);
  using five = Tensor.fromTypedArray("float32", Float32Array.of(5), [1, 1]);
  binding.bindInput("left", one);
  binding.bindInput("right", one);
  binding.bindOutputToDevice("sum");
  binding.run();
  using first = binding.output("sum");
  binding.bindInput("right", five);
  binding.run();
  expect(first.data).toEqual(Float32Array.of(2));
});

const elementTypes: readonly (readonly [TensorElementType, number, TensorData])[] = [
  ["float32", 1, Float32Array.of(-1.5, 0, 3.25)],
  ["uint8", 2, Uint8Array.of(0, 7, 255)],
  ["int8", 3, Int8Array.of(-128, 0, 127)],
  ["int32", 6, Int32Array.of(-(2 ** 31), 0, 2 ** 31 - 1)],
  ["int64", 7, BigInt64Array.of(-(2n ** 63n), 0n, 2n ** 63n - 1n)],
  ["bool", 9, Uint8Array.of(1, 0, 1)],
  ["float16", 10, Float16Array.of(-1.5, 0, 65504)],
];

test.for(elementTypes)("%s passes through a model unchanged", async ([elementType, code, numbers]) => {
  await using folder = await createTemporaryFolder();
  using session = Session.load(await writeIdentityModel(folder.path, code), options);
  using binding = session.createBinding();
  using tensor = Tensor.fromTypedArray(elementType, numbers, [3]);
  binding.bindInput("x", tensor);
  binding.bindOutputToDevice("y");
  binding.run();
  using output = binding.output("y");
  expect(output.elementType).toBe(elementType);
  expect(output.data).toEqual(numbers);
});

test("float16 may be given as its bits", async () => {
  await using folder = await createTemporaryFolder();
  using session = Session.load(await writeIdentityModel(folder.path, 10), options);
  using binding = session.createBinding();
  using bits = Tensor.fromTypedArray("float16", Uint16Array.of(0x3c00, 0xc000), [2]);
  using output = session.allocateTensor("float16", [2]);
  binding.bindInput("x", bits);
  binding.bindOutput("y", output);
  binding.run();
  expect(output.data).toEqual(Float16Array.of(1, -2));
});

test("attention over a KV cache bound as past and present updates it in place", async () => {
  await using folder = await createTemporaryFolder();
  using session = Session.load(await writeAttentionModel(folder.path), options);
  const inOneRun = decodeInOneRun(session);
  const stepByStep = decode(session);
  expect(stepByStep.outputs.length).toBe(inOneRun.outputs.length);
  stepByStep.outputs.forEach((value, index) => expect(value).toBeCloseTo(inOneRun.outputs[index]!, 5));
  expect(stepByStep.keys).toEqual(inOneRun.keys);
});

test("an unknown name is rejected, and the binding still works", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  using tensor = Tensor.fromTypedArray("float32", Float32Array.of(1), [1, 1]);
  const refusal = { code: "runtime_failed", message: "The model has no input middle; its inputs are left, right." };
  expect(() => binding.bindInput("middle", tensor)).toThrow(expect.objectContaining(refusal));
  expect(() => binding.bindOutput("difference", tensor)).toThrow("its outputs are sum");
  expect(() => binding.bindOutputToDevice("difference")).toThrow("its outputs are sum");
  binding.bindInput("left", tensor);
  binding.bindInput("right", tensor);
  binding.bindOutputToDevice("sum");
  binding.run();
  expect(binding.output("sum").data).toEqual(Float32Array.of(2));
});

test("a run without an input, or with a wrong type, shape or output, is an error, and the next run is correct", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  using right = Tensor.fromTypedArray("float32", new Float32Array(6).fill(1), [2, 3]);
  using tooLong = Tensor.fromTypedArray("float32", new Float32Array(8).fill(1), [2, 4]);
  using vector = Tensor.fromTypedArray("float32", new Float32Array(6).fill(1), [6]);
  using integers = Tensor.fromTypedArray("int32", new Int32Array(6).fill(1), [2, 3]);
  using sum = session.allocateTensor("float32", [2, 3]);
  using tooSmall = session.allocateTensor("float32", [1, 3]);
  const failure = expect.objectContaining({ name: "EngineError", code: "runtime_failed" });
  binding.bindOutput("sum", sum);
  binding.bindInput("left", right);
  expect(() => binding.run()).toThrow(failure);
  for (const wrong of [tooLong, vector, integers]) {
    binding.bindInput("right", wrong);
    expect(() => binding.run()).toThrow(failure);
  }
  binding.bindInput("right", right);
  binding.bindOutput("sum", tooSmall);
  expect(() => binding.run()).toThrow(failure);
  binding.bindOutput("sum", sum);
  binding.run();
  expect(sum.data).toEqual(new Float32Array(6).fill(2));
});

test("a tensor disposed of after binding is still read by the next run", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  const tensor = Tensor.fromTypedArray("float32", Float32Array.of(3), [1, 1]);
  binding.bindInput("left", tensor);
  binding.bindInput("right", tensor);
  tensor[Symbol.dispose]();
  binding.bindOutputToDevice("sum");
  binding.run();
  expect(binding.output("sum").data).toEqual(Float32Array.of(6));
  expect(() => binding.bindInput("left", tensor)).toThrow("used after its disposal");
});

test("cleared inputs and outputs must be bound again", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  using tensor = Tensor.fromTypedArray("float32", Float32Array.of(3), [1, 1]);
  binding.bindInput("left", tensor);
  binding.bindInput("right", tensor);
  binding.bindOutputToDevice("sum");
  binding.run();
  binding.clearInputs();
  expect(() => binding.run()).toThrow(expect.objectContaining({ code: "runtime_failed" }));
  binding.clearOutputs();
  expect(() => binding.output("sum")).toThrow("no output is bound under the name sum");
});

test("an output fetched before any run is an error", async () => {
  using session = await loadSumModel();
  using binding = session.createBinding();
  binding.bindOutputToDevice("sum");
  expect(() => binding.output("sum")).toThrow(expect.objectContaining({ name: "EngineError" }));
});
