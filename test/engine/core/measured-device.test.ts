/** The memory plan of a GPU, over a device of the host that reports its memory as a card does. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { DeviceName } from "../../../engine/contract/config.ts";
import { outlineOf } from "../../../engine/core/image-outline.ts";
import { loadGraphs } from "../../../engine/core/load-graphs.ts";
import type { MeasuredDevice } from "../../../engine/core/measured-device.ts";
import { planKvCache } from "../../../engine/kv/memory-plan.ts";
import type { BuiltModel, VisionEncoderGraph } from "../../../engine/models/built-model.ts";
import { requireCudnn } from "../../../engine/runtime/execution-provider.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "../models/direct-build.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";
import { withRoomFor, withRoomForImage } from "./scarce-memory.ts";
import type { DeviceRoom } from "./scarce-memory.ts";

const mebibyte = 2 ** 20;
const blockSize = 16;
const maxNumSequences = 8;
const maxNumBatchedTokens = 600;

let cache: TemporaryFolder;
let golden: GoldenModel;

beforeAll(async () => {
  cache = await createTemporaryFolder();
  golden = await buildGoldenModel("llava-default", cache.path, "float32", { kind: "paged", blockSize });
});

afterAll(() => cache[Symbol.asyncDispose]());

/** Counts how often it is asked: once before anything is loaded, and once for the KV cache. */
class ReportingDevice implements MeasuredDevice {
  readonly name = "cpu";
  numReports = 0;
  readonly #totalBytes: number;
  readonly #freeBytes: number;

  constructor(totalBytes: number, freeBytes: number) {
    this.#totalBytes = totalBytes;
    this.#freeBytes = freeBytes;
  }

  readonly memoryBytes = () => {
    this.numReports++;
    return { totalBytes: this.#totalBytes, freeBytes: this.#freeBytes };
  };
}

function load({ model, cases }: GoldenModel, device: MeasuredDevice | null): number {
  const image = goldenRequest(
    "",
    cases.find(({ pictures }) => pictures.length > 0)!,
    model,
  ).images[0]!;
  const options = createWorkerOptions(model, { maxNumSequences, maxNumBatchedTokens, gpuMemoryUtilization: 0.75 });
  const { decoder, kvManager, visionEncoder } = loadGraphs({ ...options, largestImage: outlineOf(image) }, device);
  decoder[Symbol.dispose]();
  visionEncoder![Symbol.dispose]();
  return kvManager.capacity.numBlocks;
}

test("blocks take the share of the device's memory that is not in use, and no more than all need on the host", () => {
  const { numLayers, numKvHeads, headDim } = golden.model.decoder;
  const blockBytes = 2 * numLayers * numKvHeads * headDim * 4 * blockSize;
  const device = new ReportingDevice(64 * mebibyte, 40 * mebibyte);
  expect(load(golden, device)).toBe(Math.floor(((64 * 0.75 - 24) * mebibyte) / blockBytes));
  expect(device.numReports).toBe(2);
  expect(load(golden, null)).toBe((maxNumSequences * 512) / blockSize + 1);
});

test("weights of both parts are compared with free memory before anything is loaded", () => {
  const { decoder, visionEncoder } = golden.model;
  const path = join(cache.path, "missing.onnx");
  const model = { ...golden.model, decoder: { ...decoder, path }, visionEncoder: { ...visionEncoder!, path } };
  const numBytes = decoder.weightBytes + visionEncoder!.weightBytes;
  expect(visionEncoder!.weightBytes).toBeGreaterThan(0);
  const scarce = new ReportingDevice(64 * mebibyte, numBytes - 1);
  expect(() => load({ ...golden, model }, scarce)).toThrow(/^The weights do not fit .* the vision encoder's take /);
  expect(() => load({ ...golden, model }, new ReportingDevice(64 * mebibyte, numBytes))).toThrow("missing.onnx");
});

test("the largest image is encoded before blocks are planned", async () => {
  const { imageSize } = golden.model.visionEncoder!;
  const numNumbers = 3 * imageSize ** 2;
  const device = new ReportingDevice(64 * mebibyte, 40 * mebibyte);
  const scarce = await withRoomForImage(golden, numNumbers - 1, cache.path);
  expect(() => load(scarce, device)).toThrow(
    /^Beside the weights, the device has no memory for an image of \d+ embeddings, .* encode them on the CPU\. .*CUDA failure 2/,
  );
  expect(device.numReports).toBe(1);
  expect(() => load(scarce, null)).not.toThrow();
  const ample = await withRoomForImage(golden, numNumbers, cache.path);
  expect(load(ample, device)).toBeGreaterThan(1);
});

// A sequence of full length, 512 tokens, another of 82, and one token of each of the other six.
test.for<[keyof DeviceRoom, number]>([
  ["numTokens", maxNumBatchedTokens],
  ["numSequences", maxNumSequences],
  ["numRows", 32],
])("the largest step, with its %s of %i, is computed before blocks are planned", async ([what, size]) => {
  const device = new ReportingDevice(64 * mebibyte, 40 * mebibyte);
  const scarce = await withRoomFor(golden, { [what]: size - 1 }, cache.path);
  expect(() => load(scarce, device)).toThrow(
    /^Beside the weights, the device has no memory for a step of 600 tokens and 8 sequences\. .*CUDA failure 2/,
  );
  expect(device.numReports).toBe(1);
  expect(load(await withRoomFor(golden, { [what]: size }, cache.path), device)).toBeGreaterThan(1);
});

// A run of prompts copies as much as the longest sequence has, so it has no more tokens; newest tokens run apart.
test.for<[keyof DeviceRoom, number]>([
  ["numTokens", 512],
  ["numSequences", maxNumSequences],
])("over 8-bit floats, the largest run has %s of %i", async ([what, size]) => {
  const { checkpointFolder } = await loadGoldens("llava-default");
  const form = { kvLayout: { kind: "paged", blockSize }, kvPrecision: { kind: "fp8" } } as const;
  const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, maxModelLen: 512, ...form });
  const device = new ReportingDevice(64 * mebibyte, 40 * mebibyte);
  const scarce = await withRoomFor({ ...golden, model }, { [what]: size - 1 }, cache.path);
  expect(() => load(scarce, device)).toThrow(/the device has no memory for a step of 600 tokens and 8 sequences/);
  expect(load(await withRoomFor({ ...golden, model }, { [what]: size }, cache.path), device)).toBeGreaterThan(1);
});

test("recurrent states take their part of the room for blocks, after the largest step", async () => {
  const { model } = await buildGoldenModel("qwen3.5", cache.path, "float32", { kind: "paged", blockSize });
  const { bytesPerToken, stateBytesPerSequence } = planKvCache(model.decoder, { numSlots: 1, maxLen: 512 });
  // Three rows of a slot; here four for each of eight sequences, and two for padding.
  const stateBytes = (34 * stateBytesPerSequence) / 3;
  const room = stateBytes + 40.5 * bytesPerToken * blockSize;
  const device = new ReportingDevice(256 * mebibyte, 64 * mebibyte + room);
  const options = createWorkerOptions(model, { maxNumSequences, maxNumBatchedTokens, gpuMemoryUtilization: 0.75 });
  const { decoder, kvManager } = loadGraphs(options, device);
  using owned = decoder;
  expect(kvManager.capacity.numBlocks).toBe(40);
  expect(owned.draftObstacle).not.toBeNull();
  const scarce = await withRoomFor({ ...golden, model }, { numTokens: maxNumBatchedTokens - 1 }, cache.path);
  expect(() => loadGraphs({ ...options, model: scarce.model }, device)).toThrow(
    "has no memory for a step of 600 tokens",
  );
});

test("a GPU without room for one sequence gets a length that fits", () => {
  const { numLayers, numKvHeads, headDim } = golden.model.decoder;
  const blockBytes = 2 * numLayers * numKvHeads * headDim * 4 * blockSize;
  const withBlocks = (numBlocks: number) => () =>
    load(golden, new ReportingDevice(256 * mebibyte, 64 * mebibyte + numBlocks * blockBytes));
  expect(withBlocks(33)()).toBe(33);
  expect(withBlocks(32)).toThrow(
    expect.objectContaining({
      setting: "maxModelLen",
      message: expect.stringMatching(/ A sequence of 496 tokens would fit\. A smaller dtype, a higher GPU memory util/),
    }),
  );
  expect(withBlocks(1)).toThrow(expect.objectContaining({ setting: null }));
});

const hasCudnn = (() => {
  try {
    requireCudnn();
    return true;
  } catch {
    return false;
  }
})();

test.skipIf(hasCudnn)("cuDNN is looked for before anything is loaded, unless images are encoded on the CPU", () => {
  const { decoder, visionEncoder } = golden.model;
  const path = join(cache.path, "missing.onnx");
  const modelOn = (device: DeviceName): BuiltModel => ({
    ...golden.model,
    decoder: { ...decoder, path },
    visionEncoder: { ...(visionEncoder as VisionEncoderGraph), path, device },
  });
  const device = new ReportingDevice(64 * mebibyte, 40 * mebibyte);
  const start = (model: BuiltModel): unknown => loadGraphs(createWorkerOptions(model, { device: "cuda" }), device);
  expect(() => start(modelOn("cuda"))).toThrow(/^Images need cuDNN 9 on cuda/);
  expect(device.numReports).toBe(0);
  expect(() => start(modelOn("cpu"))).toThrow("missing.onnx");
});

describe("slots", () => {
  let slots: GoldenModel;
  let bytesPerSequence: number;

  beforeAll(async () => {
    slots = await buildGoldenModel("llava-default", cache.path);
    const { numLayers, numKvHeads, headDim } = slots.model.decoder;
    bytesPerSequence = 2 * numLayers * numKvHeads * headDim * 4 * 512;
  });

  /** With so much left of three quarters of its memory. */
  const deviceWith = (numLeft: number): ReportingDevice => new ReportingDevice(256 * mebibyte, 64 * mebibyte + numLeft);

  test("the start says how many sequences and tokens would fit", () => {
    expect(() => load(slots, deviceWith(maxNumSequences * bytesPerSequence))).not.toThrow();
    expect(() => load(slots, deviceWith(maxNumSequences * bytesPerSequence - 1))).toThrow(
      expect.objectContaining({
        code: "invalid_configuration",
        setting: "maxNumSequences",
        message: expect.stringMatching(
          /of 8 sequences of 512 tokens does not fit .* beside weights and activations, the GPU has .* 7 sequences of that length would fit, or 8 of 511 tokens\. A smaller dtype, a higher GPU memory utilization and /,
        ),
      }),
    );
    expect(() => load(slots, deviceWith(bytesPerSequence / 2))).toThrow("One sequence of 256 tokens would fit.");
    expect(() => load(slots, deviceWith(-mebibyte))).toThrow("the GPU has 0.0 MiB. Not even one token would fit.");
  });

  test("weights are compared with free memory before anything is loaded", () => {
    const { decoder, visionEncoder } = slots.model;
    const path = join(cache.path, "missing.onnx");
    const model = { ...slots.model, decoder: { ...decoder, path } };
    const numBytes = decoder.weightBytes + visionEncoder!.weightBytes;
    expect(() => load({ ...slots, model }, new ReportingDevice(mebibyte, numBytes - 1))).toThrow(/^The weights do not/);
    expect(() => load({ ...slots, model }, new ReportingDevice(mebibyte, numBytes))).toThrow("missing.onnx");
  });

  test("the largest image and the largest chunk are computed before slots are planned", async () => {
    const device = deviceWith(maxNumSequences * bytesPerSequence);
    const numNumbers = 3 * slots.model.visionEncoder!.imageSize ** 2;
    const withoutImages = await withRoomForImage(slots, numNumbers - 1, cache.path);
    expect(() => load(withoutImages, device)).toThrow(/no memory for an image of/);
    const withShortSteps = await withRoomFor(slots, { numTokens: 511 }, cache.path);
    expect(() => load(withShortSteps, device)).toThrow(/no memory for a step of 600 tokens and 8 sequences/);
    expect(device.numReports).toBe(2);
    for (const room of [{ numTokens: 512 }, { numRows: maxNumSequences }]) {
      expect(load(await withRoomFor(slots, room, cache.path), device)).toBeGreaterThan(0);
    }
    const withFewRows = await withRoomFor(slots, { numRows: maxNumSequences - 1 }, cache.path);
    expect(() => load(withFewRows, device)).toThrow(/no memory for a step/);
  });
});
