import { expect, test } from "vitest";

import { collectGarbage } from "../../../engine/runtime/collect-garbage.ts";
import type { IoBinding } from "../../../engine/runtime/io-binding.ts";
import { releaseFreedMemory, releaseIdleMemory } from "../../../engine/runtime/release-memory.ts";
import { Session, releaseRunMemory } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { writeSumModel, writeTripleModel } from "./small-models.ts";

test("after the memory of loading is released, sessions run as before and new ones load", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  using loadedBefore = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 2 });
  expect(doubled(loadedBefore)).toEqual(Float32Array.of(2, 4, 6));
  releaseFreedMemory();
  releaseFreedMemory();
  expect(doubled(loadedBefore)).toEqual(Float32Array.of(2, 4, 6));
  using loadedAfter = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 2 });
  expect(doubled(loadedAfter)).toEqual(Float32Array.of(2, 4, 6));
});

test("an idle session releases the memory between its nodes and then runs as before", async () => {
  await using folder = await createTemporaryFolder();
  using session = Session.load(await writeTripleModel(folder.path), { device: "cpu", deviceId: 0, numThreads: 1 });
  using binding = session.createBinding();
  const largeSize = 4 * 2 ** 20;
  const releasedBytes: number[] = [];
  // ONNX Runtime keeps the memory that it took first.
  for (const size of [1000, largeSize, largeSize]) {
    using x = Tensor.fromTypedArray("float32", new Float32Array(size).fill(5), [size]);
    using tripled = session.allocateTensor("float32", [size]);
    binding.bindInput("x", x);
    binding.bindOutput("tripled", tripled);
    binding.run();
    const residentBytes = process.memoryUsage.rss();
    releaseIdleMemory();
    releasedBytes.push(residentBytes - process.memoryUsage.rss());
    expect(tripled.data.every((value) => value === 15)).toBe(true);
  }
  // Half of a value: more than the process does meanwhile.
  expect(Math.min(...releasedBytes.slice(1))).toBeGreaterThan(2 * largeSize);
});

test("memory of runs is released once, and not through a disposed binding", async () => {
  await using folder = await createTemporaryFolder();
  using session = Session.load(await writeSumModel(folder.path), { device: "cpu", deviceId: 0, numThreads: 1 });
  expect(releaseRunMemory()).toBe(false);
  const run = (): IoBinding => {
    const binding = session.createBinding();
    using numbers = Tensor.fromTypedArray("float32", Float32Array.of(1), [1, 1]);
    binding.bindInput("left", numbers);
    binding.bindInput("right", numbers);
    binding.bindOutputToDevice("sum");
    binding.run();
    return binding;
  };
  run();
  expect(releaseRunMemory()).toBe(true);
  expect(releaseRunMemory()).toBe(false);
  run()[Symbol.dispose]();
  expect(releaseRunMemory()).toBe(false);
});

test("unreferenced objects are collected", async () => {
  const unreachable = new WeakRef({ text: "parsed and used" });
  // A weak reference holds its target until the end of the turn in which it was created.
  await collectGarbage();
  expect(unreachable.deref()).toBeUndefined();
});

function doubled(session: Session): unknown {
  using binding = session.createBinding();
  using numbers = Tensor.fromTypedArray("float32", Float32Array.of(1, 2, 3), [1, 3]);
  using sum = session.allocateTensor("float32", [1, 3]);
  binding.bindInput("left", numbers);
  binding.bindInput("right", numbers);
  binding.bindOutput("sum", sum);
  binding.run();
  return sum.copyToHost();
}
