import { expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import { resolveCopies } from "../../../engine/loading/resolve-copies.ts";
import type { DecoderExport, DecoderGraph } from "../../../engine/models/built-model.ts";
import { machineMemoryBytes } from "../../../engine/runtime/machine-memory.ts";
import { numUsableCores } from "../../../engine/runtime/usable-cores.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";

const decoder: DecoderGraph = {
  form: "in-place",
  kvLayout: { kind: "slots" },
  numCandidates: 0,
  path: "",
  weightBytes: 2 ** 20,
  weights: [],
  numLayers: 2,
  numKvHeads: 1,
  headDim: 64,
  hiddenSize: 64,
  imageWidth: 64,
  vocabSize: 256,
  kvElementType: "float32",
  acceptsImages: false,
  takesPositions: false,
};
const model = { decoder, maxLen: 512, hasCustomProcessors: false };
const config: EngineConfig = { ...goldenEngineConfig("llama", ""), numThreads: 2, maxNumSequences: 32 };
const one = { dataParallelSize: 1, numThreads: 2, maxNumSequences: 32 };

const hasTwoCores = numUsableCores() >= 2;

test.runIf(hasTwoCores)("two threads compute two copies, which divide the limits", () => {
  expect(resolveCopies(config, model)).toMatchObject({
    dataParallelSize: 2,
    numThreads: 1,
    maxNumSequences: 16,
    kvCacheMemoryBytes: null,
  });
  const limited = resolveCopies({ ...config, dataParallelSize: null, kvCacheMemoryBytes: 2 ** 30 }, model);
  expect(limited).toMatchObject({ dataParallelSize: 2, kvCacheMemoryBytes: 2 ** 29 });
});

test.for<[string, Partial<EngineConfig>, Partial<typeof model>]>([
  ["one thread", { numThreads: 1 }, {}],
  ["more threads than copies were measured with", { numThreads: 3 }, {}],
  ["few sequences", { maxNumSequences: 14 }, {}],
  ["an odd number of sequences", { maxNumSequences: 33 }, {}],
  ["a GPU", { device: "cuda" }, {}],
  ["a vision encoder on a GPU", { visionDevice: "cuda" }, {}],
  ["logits processors of one's own", {}, { hasCustomProcessors: true }],
  ["a paged cache", {}, { decoder: { ...decoder, kvLayout: { kind: "paged", blockSize: 32 } } }],
  ["sequences that do not fit", { kvCacheMemoryBytes: 2 ** 20 }, {}],
  ["weights that leave no room", {}, { decoder: { ...decoder, weightBytes: machineMemoryBytes() } }],
])("%s: one copy with all limits", ([, settings, properties]) => {
  const { dataParallelSize, maxNumSequences, numThreads, kvCacheMemoryBytes } = { ...one, ...config, ...settings };
  const resolved = resolveCopies({ ...config, ...settings }, { ...model, ...properties });
  expect(resolved).toMatchObject({ dataParallelSize: 1, maxNumSequences, numThreads });
  expect(resolved.kvCacheMemoryBytes).toBe(kvCacheMemoryBytes);
  expect(dataParallelSize).toBe(1);
});

test("an export has one copy", () => {
  const exported = { ...decoder, form: "export" } as unknown as DecoderExport;
  expect(resolveCopies(config, { ...model, decoder: exported })).toMatchObject(one);
});

test("a wanted number is kept, with the limits of each copy", () => {
  const wanted = { ...config, dataParallelSize: 4, maxNumSequences: 3, kvCacheMemoryBytes: 2 ** 20 };
  expect(resolveCopies(wanted, { ...model, hasCustomProcessors: true })).toEqual(wanted);
  expect(resolveCopies({ ...config, dataParallelSize: 1 }, model)).toMatchObject(one);
  const divided = resolveCopies({ ...config, dataParallelSize: 64, numThreads: null }, model);
  expect(divided.numThreads).toBe(1);
});
