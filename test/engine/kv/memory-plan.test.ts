import { expect, test } from "vitest";

import {
  gpuKvRoomBytes,
  kvRoomBytes,
  numSequencesThatFit,
  planEncoderCache,
  planKvCache,
  planMemory,
  requireRoomForKv,
  requireRoomForSequences,
  requireRoomForWeights,
} from "../../../engine/kv/memory-plan.ts";

/** LLaVA-1.5-7B's: a Llama 2 7B decoder. */
const llava7b = {
  numLayers: 32,
  numKvHeads: 32,
  headDim: 128,
  hiddenSize: 4096,
  vocabSize: 32_064,
  kvElementType: "float16",
} as const;

const smolLm2135m = {
  numLayers: 30,
  numKvHeads: 3,
  headDim: 64,
  hiddenSize: 576,
  imageWidth: 576,
  vocabSize: 49_152,
  kvElementType: "float32",
} as const;

const mebibyte = 2 ** 20;
const gibibyte = 2 ** 30;

test("a token of LLaVA-1.5-7B takes half a MiB of KV in float16, a sequence 2 GiB", () => {
  // 2 (key and value) * 32 layers * 32 heads * 128 numbers * 2 bytes = 524,288.
  expect(planKvCache(llava7b, { numSlots: 8, maxLen: 4096 })).toEqual({
    bytesPerToken: 524_288,
    stateBytesPerSequence: 0,
    bytesPerSequence: 2 * gibibyte,
    reservedBytes: 16 * gibibyte,
    blocks: null,
  });
});

test("a token of SmolLM2-135M takes 45 KiB of KV in float32, a sequence 90 MiB", () => {
  // 2 * 30 layers * 3 heads * 64 numbers * 4 bytes = 46,080; of 2048 tokens 94,371,840.
  expect(planKvCache(smolLm2135m, { numSlots: 32, maxLen: 2048 })).toEqual({
    bytesPerToken: 46_080,
    stateBytesPerSequence: 0,
    bytesPerSequence: 90 * mebibyte,
    reservedBytes: 2880 * mebibyte,
    blocks: null,
  });
});

test("recurrent states add the same bytes to a sequence of any length: three with slots, four with blocks", () => {
  const recurrent = {
    numLayers: 18,
    numChannels: 6144,
    kernelSize: 4,
    matrices: { numHeads: 16, keyDim: 128, valueDim: 128 },
  };
  const hybrid = { ...smolLm2135m, recurrent };
  // 18 layers * (16 * 128 * 128 + 3 * 6144 numbers) * 4 bytes.
  const stateBytes = 20_201_472;
  // The slot's own and two snapshots.
  expect(planKvCache(hybrid, { numSlots: 8, maxLen: 2048 })).toMatchObject({
    stateBytesPerSequence: 3 * stateBytes,
    bytesPerSequence: 90 * mebibyte + 3 * stateBytes,
    reservedBytes: 8 * (90 * mebibyte + 3 * stateBytes),
  });
  const blocks = { blockSize: 16, numBlocks: 129, numTokens: 2048 };
  // A pair and two snapshots for each sequence, and a pair for padding.
  expect(planKvCache(hybrid, { numSlots: 8, maxLen: 2048 }, blocks)).toMatchObject({
    stateBytesPerSequence: 4 * stateBytes,
    reservedBytes: 46_080 * 16 * 129 + 34 * stateBytes,
  });
  // Of the convolutions' inputs, 18 layers * 3 * 6144 numbers * 2 bytes are saved.
  const half = { ...hybrid, recurrent: { ...recurrent, inputType: "float16", isTransposed: true } } as const;
  expect(planKvCache(half, { numSlots: 8, maxLen: 2048 }, blocks).stateBytesPerSequence).toBe(
    4 * (stateBytes - 663_552),
  );
});

test("the encoder cache has 64 MiB, or the size of the largest image", () => {
  // 4096 floats are 16 KiB, of which 64 MiB hold 4096: seven images of 576.
  expect(planEncoderCache(4096, 576)).toEqual({ maxNumEmbeddings: 4096, maxBytes: 64 * mebibyte });
  expect(planEncoderCache(4096, 5000)).toEqual({ maxNumEmbeddings: 5000, maxBytes: 81_920_000 });
  expect(planEncoderCache(576, 0)).toEqual({ maxNumEmbeddings: 0, maxBytes: 0 });
});

test("the total is the sum of the parts at their largest", () => {
  const planned = {
    weights: { embedding: 1000, decoder: 200, visionEncoder: 30 },
    adapterBytes: 0,
    experts: null,
    decoderRunBytes: ({ numSequences, numTokens }: { numSequences: number; numTokens: number }) =>
      numSequences * numTokens,
    visionRunBytes: (numEmbeddings: number) => 2 * numEmbeddings,
  };
  const settings = {
    maxNumSequences: 32,
    maxNumBatchedTokens: 512,
    maxModelLen: 256,
    maxEmbeddingsPerImage: 576,
    imageBytesPerSequence: 5,
    processorCacheBytes: 7,
  };
  const plan = planMemory(smolLm2135m, planned, settings);
  // A chunk is no longer than a sequence; logits are 32 * 49,152 floats.
  expect(plan.step).toEqual({ decoderBytes: 256, visionEncoderBytes: 1152, logitsBytes: 6 * mebibyte });
  const rest = plan.programBytes + plan.requestBytes;
  expect(plan.totalBytes - rest).toBe(
    1230 + 256 + 1152 + 6 * mebibyte + 46_080 * 256 * 32 + plan.encoderCache.maxBytes + 7,
  );
  const withoutImages = planMemory(smolLm2135m, planned, { ...settings, imageBytesPerSequence: 0 });
  expect(plan.requestBytes - withoutImages.requestBytes).toBe(5 * 32);
  const textOnly = planMemory(smolLm2135m, planned, { ...settings, maxEmbeddingsPerImage: 0 });
  expect([textOnly.processorCacheBytes, textOnly.encoderCache.maxBytes]).toEqual([0, 0]);
  // A further copy has graphs, steps and an encoder cache of its own.
  expect(plan.furtherCopyBytes).toBe(0);
  const divided = planMemory(smolLm2135m, planned, { ...settings, numDividing: 2 });
  expect(divided.furtherCopyBytes).toBe(48 * mebibyte + 256 + 1152 + plan.encoderCache.maxBytes);
  expect(divided.totalBytes - plan.totalBytes).toBe(divided.furtherCopyBytes);
});

test("KV larger than the machine is rejected with both numbers and a size that would fit", () => {
  const shape = { numSlots: 8, maxLen: 4096 };
  const plan = planKvCache(llava7b, shape);
  expect(() => requireRoomForKv(plan, shape, 16 * gibibyte)).not.toThrow();
  expect(() => requireRoomForKv(plan, shape, 15 * gibibyte)).toThrow(
    "The KV cache of 8 sequences of 4096 tokens does not fit into memory. It takes 16.0 GiB; the machine has 15.0 GiB. " +
      "7 sequences of that length would fit, or 8 of 3840 tokens.",
  );
  expect(() => requireRoomForKv(plan, shape, gibibyte)).toThrow("One sequence of 2048 tokens would fit.");
});

test("as many sequences run together as fit next to the weights, and never more than requested", () => {
  // 13 GiB of weights, 160 MiB of program and a tenth of the machine leave room for KV, 2 GiB a sequence.
  const fitting = (machineGibibytes: number, maxNumSequences = 32): number =>
    numSequencesThatFit(
      llava7b,
      { maxNumSequences, maxLen: 4096 },
      { weightBytes: 13 * gibibyte, machineBytes: machineGibibytes * gibibyte },
    );
  expect([12, 16, 17, 24, 64, 128].map((machine) => fitting(machine))).toEqual([0, 0, 1, 4, 22, 32]);
  expect(fitting(128, 8)).toBe(8);
});

test("a small machine keeps 160 MiB free, or a quarter of its memory", () => {
  const room = (machineMebibytes: number): number =>
    kvRoomBytes({ weightBytes: 100 * mebibyte, machineBytes: machineMebibytes * mebibyte }) / mebibyte;
  // Beside 100 MiB of weights and 160 MiB of program.
  expect([480, 700, 1600, 4000].map(room)).toEqual([100, 280, 1180, 3340]);
});

test("an export needs room for one more sequence", () => {
  const machine = { weightBytes: 0, machineBytes: 11 * gibibyte };
  const lengths = { maxNumSequences: 32, maxLen: 4096 };
  expect(numSequencesThatFit({ ...llava7b, form: "in-place" }, lengths, machine)).toBe(4);
  expect(numSequencesThatFit({ ...llava7b, form: "export" }, lengths, machine)).toBe(3);
});

test("if not even one sequence fits, the error gives a length that would", () => {
  const lengths = { maxNumSequences: 32, maxLen: 4096 };
  const refusal = (machineGibibytes: number) => () =>
    requireRoomForSequences(llava7b, lengths, {
      weightBytes: 13 * gibibyte,
      machineBytes: machineGibibytes * gibibyte,
    });
  expect(refusal(16)).toThrow(
    "The KV cache of one sequence of 4096 tokens does not fit into memory: it takes 2.0 GiB, the weights 13.0 GiB, " +
      "the program 160.0 MiB; the machine has 16.0 GiB. 2547 tokens would fit.",
  );
  expect(refusal(8)).toThrow("Not even one token would fit: choose a smaller model or dtype, or give the process");
  expect(refusal(17)()).toBe(1);
  expect(refusal(1 / 8)).toThrow("; the machine has 128.0 MiB. ");
});

test("weights that do not fit into a device's free memory are rejected with both sizes", () => {
  const both = { decoder: 7 * gibibyte, visionEncoder: 1.5 * gibibyte };
  expect(() => requireRoomForWeights(both, 8 * gibibyte)).toThrow(
    "The weights do not fit into the GPU's memory: the decoder's take 7.0 GiB, the vision encoder's take 1.5 GiB, and " +
      "8.0 GiB are free. Choose a smaller dtype, a larger GPU, or end other programs on it, or encode images on the CPU " +
      "(vision device cpu).",
  );
  expect(() => requireRoomForWeights(both, 8.5 * gibibyte)).not.toThrow();
  const textModel = { decoder: 16 * gibibyte, visionEncoder: 0 };
  expect(() => requireRoomForWeights(textModel, 8 * gibibyte)).toThrow(
    /: the decoder's take 16\.0 GiB, and 8\.0 GiB are free\. Choose a smaller dtype, .* programs on it\.$/,
  );
});

test("keys and values on a GPU get the share of the settings, less everything in use", () => {
  const memory = { totalBytes: 80 * gibibyte, freeBytes: 60 * gibibyte };
  expect(gpuKvRoomBytes(memory, { utilization: 0.9 })).toBe(52 * gibibyte);
  expect(gpuKvRoomBytes(memory, { utilization: 0.9, maxKvBytes: 10 * gibibyte })).toBe(10 * gibibyte);
  expect(gpuKvRoomBytes(memory, { utilization: 0.2 })).toBeLessThan(0);
});
