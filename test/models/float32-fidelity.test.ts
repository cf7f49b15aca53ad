import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { BuiltModel } from "../../engine/models/built-model.ts";
import { buildModel } from "../../engine/models/build-model.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { loadGoldens, type GoldenCase, type Goldens } from "../support/goldens.ts";
import { createTemporaryFolder, type TemporaryFolder } from "../support/temporary-folder.ts";
import { DirectDecoder, encodeImages } from "./direct-decoder.ts";

// Share of the logit range that single precision may differ by from transformers' single precision.
const tolerance = 1e-4;
const maxLength = 512;

describe.for(["llama", "qwen2", "mistral", "llava-default", "llava-full"] as const)("%s in float32", (name) => {
  let goldens: Goldens;
  let cache: TemporaryFolder;
  let model: BuiltModel;

  beforeAll(async () => {
    goldens = await loadGoldens(name);
    cache = await createTemporaryFolder();
    const checkpoint = await openCheckpoint(goldens.checkpointFolder, { cacheFolder: cache.path });
    model = await buildModel(checkpoint, {
      dtype: "float32",
      device: "cpu",
      maxModelLen: null,
      cacheFolder: cache.path,
      numThreads: 1,
    });
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  test("image features are those of transformers", () => {
    for (const { pixelValues, imageFeatures } of goldens.cases) {
      if (pixelValues === null || imageFeatures === null) continue;
      expect(relativeError(encodeImages(model, pixelValues), imageFeatures)).toBeLessThan(tolerance);
    }
  });

  test.for([1, 16, maxLength])("prompts in chunks of %i tokens lead to the logits of transformers", (chunkSize) => {
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
    for (const golden of goldens.cases) {
      const logits = decode(decoder, golden, chunkSize);
      expect(relativeError(logits, golden.logits)).toBeLessThan(tolerance);
      expect(argmaxRows(logits, model.decoder.vocabSize)).toEqual(golden.greedyTokenIds);
    }
  });

  /** The logits of each greedy token, prompt prefilled in chunks, then token by token. */
  function decode(decoder: DirectDecoder, golden: GoldenCase, chunkSize: number): Float32Array {
    const { promptTokenIds, greedyTokenIds, imageFeatures } = golden;
    const { vocabSize, hiddenSize } = model.decoder;
    const logits = new Float32Array(greedyTokenIds.length * vocabSize);
    const imageRows = promptTokenIds.flatMap((id, position) => (id === model.imageTokenId ? [position] : []));
    let last: Float32Array = new Float32Array(0);
    for (let start = 0; start < promptTokenIds.length; start += chunkSize) {
      const chunk = promptTokenIds.slice(start, start + chunkSize);
      const isLast = start + chunk.length === promptTokenIds.length;
      const first = imageRows.filter((row) => row < start).length;
      const positions = imageRows.filter((row) => row >= start && row < start + chunk.length);
      const embeddings = imageFeatures?.slice(first * hiddenSize, (first + positions.length) * hiddenSize);
      last = decoder.run({
        tokenIds: [chunk],
        numComputed: [start],
        images: { embeddings: embeddings ?? new Float32Array(0), positions: positions.map((row) => row - start) },
        logitRows: isLast ? [chunk.length - 1] : [],
      });
    }
    logits.set(last, 0);
    for (let step = 1; step < greedyTokenIds.length; step++) {
      const numComputed = promptTokenIds.length + step - 1;
      const token = greedyTokenIds[step - 1];
      logits.set(decoder.run({ tokenIds: [[token]], numComputed: [numComputed], logitRows: [0] }), step * vocabSize);
    }
    return logits;
  }
});

/** Largest difference as a share of the range of `expected`. */
function relativeError(actual: Float32Array, expected: Float32Array): number {
  expect(actual.length).toBe(expected.length);
  let difference = 0;
  let [low, high] = [Infinity, -Infinity];
  for (let index = 0; index < expected.length; index++) {
    difference = Math.max(difference, Math.abs(actual[index] - expected[index]));
    low = Math.min(low, expected[index]);
    high = Math.max(high, expected[index]);
  }
  return difference / (high - low);
}

function argmaxRows(values: Float32Array, rowSize: number): number[] {
  return Array.from({ length: values.length / rowSize }, (_, row) => {
    const slice = values.subarray(row * rowSize, (row + 1) * rowSize);
    return slice.indexOf(slice.reduce((largest, value) => Math.max(largest, value), -Infinity));
  });
}
