import { afterAll, beforeAll, expect, test } from "vitest";

import { createEngine } from "../../../engine/index.ts";
import { inspectCudaDriver, requireKernelsFor } from "../../../engine/runtime/cuda-driver.ts";
import type { CudaDriver } from "../../../engine/runtime/cuda-driver.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let cache: TemporaryFolder;

beforeAll(async () => {
  cache = await createTemporaryFolder();
});

afterAll(() => cache[Symbol.asyncDispose]());

const ok = (value: number) => ({ status: 0, value });
const MAJOR = 75;

/** Answers of a driver with one H100. */
function driverWith(changes: Partial<CudaDriver> = {}): CudaDriver {
  return {
    init: () => 0,
    version: () => 13_020,
    deviceCount: () => ok(1),
    device: ok,
    name: () => ({ status: 0, value: "NVIDIA H100 80GB HBM3" }),
    totalBytes: () => ok(85_000_000_000),
    attribute: (attribute) => ok(attribute === MAJOR ? 9 : 0),
    ...changes,
  };
}

test("a device is described by its name, memory, generation and driver", () => {
  expect(inspectCudaDriver(0, () => driverWith())).toEqual({
    name: "NVIDIA H100 80GB HBM3",
    memoryBytes: 85_000_000_000,
    computeCapability: "9.0",
    driverCudaVersion: "13.2",
    numDevices: 1,
  });
});

test.for([
  [7, 5],
  [8, 0],
  [8, 6],
  [8, 9],
  [12, 0],
] as const)("a device of compute capability %i.%i is taken", ([major, minor]) => {
  const driver = driverWith({ attribute: (attribute) => ok(attribute === MAJOR ? major : minor) });
  expect(inspectCudaDriver(0, () => driver).computeCapability).toBe(`${major}.${minor}`);
});

test("bfloat16 is rejected where the provider has no attention for it, with the types that it has", () => {
  const t4 = { name: "Tesla T4", computeCapability: "7.5" };
  expect(() => requireKernelsFor("bfloat16", t4)).toThrow(
    /^The GPU Tesla T4 has compute capability 7\.5, and bfloat16, .* needs 8\.0\. Set dtype to float16, int8 or int4\.$/,
  );
  expect(() => requireKernelsFor("float16", t4)).not.toThrow();
  expect(() => requireKernelsFor("float8e4m3", { ...t4, computeCapability: "8.6" })).toThrow(
    "an FP8 KV cache needs 8.9 or more",
  );
  for (const computeCapability of ["8.9", "9.0", "12.0"]) {
    expect(() => requireKernelsFor("float8e4m3", { ...t4, computeCapability })).not.toThrow();
  }
  for (const computeCapability of ["8.0", "9.0", "12.0"]) {
    expect(() => requireKernelsFor("bfloat16", { ...t4, computeCapability })).not.toThrow();
  }
});

test.for<[string, Partial<CudaDriver>, RegExp]>([
  [
    "a driver of CUDA 12",
    { version: () => 12_080 },
    /driver is too old: it supports CUDA 12\.8, .* Install driver 580/,
  ],
  ["no device", { init: () => 100 }, /finds no GPU.*CUDA_VISIBLE_DEVICES.*--gpus all/],
  ["a hidden device", { deviceCount: () => ok(0) }, /finds no GPU/],
  ["another driver's library", { init: () => 803 }, /too old .* or not the one whose libraries are here/],
  [
    "a device that is too old",
    { attribute: (attribute) => ok(attribute === MAJOR ? 7 : 0) },
    /7\.0; .* 7\.5, 8\.x, 9\.0 and 12\.0/,
  ],
  [
    "a device that the provider has no code for",
    { attribute: (attribute) => ok(attribute === MAJOR ? 10 : 0) },
    /capability 10\.0; the provider has code for/,
  ],
  [
    "a device of another architecture than the one that its generation's code is specific to",
    { attribute: (attribute) => ok(attribute === MAJOR ? 12 : 1) },
    /capability 12\.1; the provider has code for/,
  ],
])("%s is refused in one line that says what to do", ([, changes, message]) => {
  expect(() => inspectCudaDriver(0, () => driverWith(changes))).toThrow(
    expect.objectContaining({ code: "invalid_configuration", message: expect.stringMatching(message) }),
  );
});

test("a device beyond the last is refused with its number", () => {
  expect(() => inspectCudaDriver(3, () => driverWith())).toThrow(/There is no CUDA device 3/);
});

test("an unexpected status of the driver is reported as it is", () => {
  expect(() => inspectCudaDriver(0, () => driverWith({ init: () => 42 }))).toThrow("CUDA failure 42.");
});

// Machines with a GPU have its own tests (test/gpu).
test.skipIf(hasDriver())("a machine without a driver is refused by its own loader", () => {
  expect(() => inspectCudaDriver(0)).toThrow(/This machine has no NVIDIA driver: libcuda\.so\.1 is not there/);
});

test.skipIf(hasDriver())("an engine on a machine without CUDA ends its download and fails", async () => {
  const config = { ...goldenEngineConfig("llama", cache.path), device: "cuda", model: "s3://bucket/model" } as const;
  let downloads = 0;
  const createS3Client = (): never => {
    downloads += 1;
    // Hangs as long as a large checkpoint would; the engine gives up all the same.
    return {
      send: (_: unknown, { abortSignal }: { abortSignal: AbortSignal }) => rejectedBy(abortSignal),
      destroy() {},
    } as never;
  };
  const engine = createEngine(config, { createS3Client });
  await expect(engine.ready).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/^The cuda device needs libonnxruntime_providers_cuda\.so|no NVIDIA driver/),
  });
  expect(engine.state).toBe("failed");
  expect(downloads).toBe(1);
  await engine.close();
});

function rejectedBy(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
    if (signal.aborted) reject(signal.reason as Error);
  });
}

function hasDriver(): boolean {
  try {
    inspectCudaDriver(0);
    return true;
  } catch (error) {
    return !(error instanceof Error && error.message.includes("no NVIDIA driver"));
  }
}
