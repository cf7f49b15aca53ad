import { execFile } from "node:child_process";
import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { Session } from "../../../engine/runtime/session.ts";
import type { OtherRuns, SessionOptions } from "../../../engine/runtime/session.ts";
import { WeightSharing } from "../../../engine/runtime/shared-weights.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { writeProductModel } from "./small-models.ts";
import type { ProductModel } from "./small-models.ts";

const size = 64;
const options: SessionOptions = { device: "cpu", deviceId: 0, numThreads: 1 };

function load({ path, externalDataFolder, weights }: ProductModel, sharing: WeightSharing, otherRuns?: OtherRuns) {
  return Session.load(path, { ...options, externalDataFolder, sharedWeights: sharing.share(weights), otherRuns });
}

function multiply(session: Session): Float32Array {
  using binding = session.createBinding();
  using x = Tensor.fromTypedArray(
    "float32",
    Float32Array.from({ length: 2 * size }, (_, index) => (index % 7) - 3),
    [2, size],
  );
  using y = session.allocateTensor("float32", [2, size]);
  binding.bindInput("x", x);
  binding.bindOutput("y", y);
  binding.run();
  return y.data.slice();
}

test("sessions with shared weights compute as one with its own does, also after others have ended", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeProductModel(folder.path, size);
  using own = Session.load(model.path, { ...options, externalDataFolder: model.externalDataFolder });
  const expected = multiply(own);
  expect(expected.some((value) => value !== 0)).toBe(true);
  using sharing = WeightSharing.create()!;
  using first = load(model, sharing);
  {
    using second = load(model, sharing);
    expect(multiply(second)).toEqual(expected);
  }
  expect(multiply(first)).toEqual(expected);
  using third = load(model, sharing);
  expect(multiply(third)).toEqual(expected);
});

test("packed weights are in memory once for all sessions", async () => {
  await using folder = await createTemporaryFolder();
  // 64 MiB of floats.
  const model = await writeProductModel(folder.path, 4096);
  const script = fileURLToPath(new URL("shared-weights-memory.ts", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [script, JSON.stringify(model)]);
  const growth = JSON.parse(stdout) as { readonly own: readonly number[]; readonly shared: readonly number[] };
  const weightBytes = 2 ** 26;
  for (const bytes of growth.own) expect(bytes).toBeGreaterThan(0.9 * weightBytes);
  expect(growth.shared[0]).toBeGreaterThan(0.9 * weightBytes);
  for (const bytes of growth.shared.slice(1)) expect(bytes).toBeLessThan(0.25 * weightBytes);
});

test("a session with other threads is loaded when they are first wanted, beside the runs", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeProductModel(folder.path, size);
  using sharing = WeightSharing.create()!;
  let areWanted = false;
  using session = load(model, sharing, { numThreads: 2, areWanted: () => areWanted });
  const expected = multiply(session);
  const first = session.chooseHandle();
  expect(session.isLoading).toBe(false);
  areWanted = true;
  expect(multiply(session)).toEqual(expected);
  expect(session.isLoading).toBe(true);
  while (session.isLoading) {
    expect(multiply(session)).toEqual(expected);
    await nextTurn();
  }
  expect(session.chooseHandle()).not.toBe(first);
  expect(multiply(session)).toEqual(expected);
  areWanted = false;
  expect(session.chooseHandle()).toBe(first);
  expect(multiply(session)).toEqual(expected);
});

test("a binding runs in both sessions with what was bound before, between and after", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeProductModel(folder.path, size);
  using sharing = WeightSharing.create()!;
  let areWanted = false;
  using session = load(model, sharing, { numThreads: 2, areWanted: () => areWanted });
  using binding = session.createBinding();
  using one = Tensor.fromTypedArray("float32", new Float32Array(size).fill(1), [1, size]);
  using two = Tensor.fromTypedArray("float32", new Float32Array(size).fill(2), [1, size]);
  using y = session.allocateTensor("float32", [1, size]);
  binding.bindInput("x", one);
  binding.bindOutput("y", y);
  binding.run();
  const ofOne = y.data.slice();
  const ofTwo = ofOne.map((value) => 2 * value);
  areWanted = true;
  binding.run();
  while (session.isLoading) await nextTurn();
  y.data.fill(0);
  binding.run();
  expect(y.data).toEqual(ofOne);
  binding.bindInput("x", two);
  binding.run();
  expect(y.data).toEqual(ofTwo);
  areWanted = false;
  y.data.fill(0);
  binding.run();
  expect(y.data).toEqual(ofTwo);
  binding.bindOutputToDevice("y", "host");
  for (areWanted of [true, false, true]) {
    binding.run();
    using fetched = binding.output("y");
    expect(fetched.data).toEqual(ofTwo);
  }
  expect(session.releaseRunMemory()).toBe(true);
  binding.run();
  using last = binding.output("y");
  expect(last.data).toEqual(ofTwo);
});

test("a session may end while its other one is loaded", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeProductModel(folder.path, size);
  using sharing = WeightSharing.create()!;
  const session = load(model, sharing, { numThreads: 2, areWanted: () => true });
  multiply(session);
  expect(session.isLoading).toBe(true);
  session[Symbol.dispose]();
  expect(session.isLoading).toBe(false);
  // Until the other one has been loaded and released: `sharing` must outlive both.
  using next = load(model, sharing, { numThreads: 2, areWanted: () => true });
  multiply(next);
  while (next.isLoading) await nextTurn();
  expect(multiply(next).some((value) => value !== 0)).toBe(true);
});

test("files that are missing or too short are named", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeProductModel(folder.path, size);
  const [weight] = model.weights;
  using sharing = WeightSharing.create()!;
  const missing = join(folder.path, "missing.bin");
  expect(() => sharing.share([{ ...weight!, file: missing }])).toThrow(
    expect.objectContaining({ code: "runtime_failed", message: expect.stringContaining(missing) }),
  );
  await truncate(weight!.file, weight!.byteOffset + 4);
  expect(() => sharing.share(model.weights)).toThrow(
    expect.objectContaining({ code: "runtime_failed", message: expect.stringContaining("ends before the weight") }),
  );
  const empty = join(folder.path, "empty.bin");
  await writeFile(empty, "");
  expect(() => sharing.share([{ ...weight!, file: empty }])).toThrow(
    expect.objectContaining({ code: "runtime_failed" }),
  );
});

test("other threads need shared weights", async () => {
  await using folder = await createTemporaryFolder();
  const { path, externalDataFolder } = await writeProductModel(folder.path, size);
  const otherRuns = { numThreads: 2, areWanted: () => false };
  expect(() => Session.load(path, { ...options, externalDataFolder, otherRuns })).toThrow(/without shared weights/);
});
