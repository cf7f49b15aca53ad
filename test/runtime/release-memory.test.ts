import { expect, test } from "vitest";
import { collectGarbage } from "../../engine/runtime/collect-garbage.ts";
import { releaseFreedMemory } from "../../engine/runtime/release-memory.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import { writeSumModel } from "./small-models.ts";

test("sessions run as before after the memory of loading is given back, and new ones load", async () => {
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

test("what is no longer referenced is collected", async () => {
  const unreachable = new WeakRef({ text: "parsed and used" });
  // A weak reference holds its target until the end of the turn it was made in.
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
