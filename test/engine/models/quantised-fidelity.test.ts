import { describe, expect, test } from "vitest";

import { MIN_SEQUENCES_IN_8_BITS } from "../../../engine/models/decoder-graph/run-kinds.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";
import { DirectDecoder, encodeGolden } from "./direct-decoder.ts";
import { argmaxRows, decodeGolden, meanDivergence } from "./golden-decoding.ts";

const maxLength = 512;

// Random weights in rows of 50 to 100 are the worst case of quantisation: nothing is redundant. Measured with 8 bits:
// divergence 0.001 to 0.02, agreement 0.91 to 1; with 4 bits 0.1 to 1.8 and 0.34 to 0.94; with 8-bit keys and values
// beside float32 weights 0.0002 to 0.02, beside 8-bit weights 0.001 to 0.04.
const bounds = [
  { dtype: "int8", kv: "activations", widenedLayers: "none", maxDivergence: 0.05, minAgreement: 0.85 },
  { dtype: "int4", kv: "activations", widenedLayers: "none", maxDivergence: 3, minAgreement: 0.25 },
  { dtype: "float32", kv: "int8", widenedLayers: "none", maxDivergence: 0.05, minAgreement: 0.85 },
  { dtype: "int8", kv: "int8", widenedLayers: "none", maxDivergence: 0.05, minAgreement: 0.85 },
  { dtype: "int4", kv: "int8", widenedLayers: "own", maxDivergence: 3, minAgreement: 0.25 },
] as const;

type Bound = (typeof bounds)[number];

/** Keys and values are measured with tokens that are not the goldens'. */
function precisionOf({ dtype, kv, widenedLayers }: Bound) {
  const sampleTokens = async (): Promise<number[]> => Array.from({ length: 64 }, (_, index) => (index * 7 + 3) % 90);
  return kv === "activations"
    ? { dtype, widenedLayers }
    : { dtype, widenedLayers, kvPrecision: { kind: "int8", steps: null } as const, sampleTokens };
}
// Qwen3.5's states carry rounding errors on from token to token, and its norms enlarge them here: their random weights
// are differences from 1. Measured divergence 0.02 to 0.04 and 1.8 to 1.9, agreement from 0.72 and from 0.19 on.
const minAgreements: Readonly<Record<string, Readonly<Record<"int8" | "int4", number>>>> = {
  "qwen3.5": { int8: 0.65, int4: 0.15 },
};

const checkpoints = [
  "llama",
  "qwen2",
  "qwen3",
  "qwen3-moe",
  "qwen3.5",
  "lfm2",
  "lfm3",
  "mistral",
  "llava-default",
  "llava-full",
  "smolvlm",
  "fuyu",
  "qwen2-vl",
] as const;

describe.for(checkpoints)("%s", (name) => {
  test.for(bounds)(
    "in $dtype with $kv KV and widened layers $widenedLayers stays close to transformers' float32",
    async (bound) => {
      const { maxDivergence, minAgreement } = bound;
      await using cache = await createTemporaryFolder();
      const goldens = await loadGoldens(name);
      const model = await buildFrom(goldens.checkpointFolder, { cacheFolder: cache.path, ...precisionOf(bound) });
      using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
      const { vocabSize } = model.decoder;
      for (const golden of goldens.cases) {
        const features = encodeGolden(model, golden);
        const logits = decodeGolden(decoder, model, golden, maxLength, features);
        expect(meanDivergence(golden.logits, logits, vocabSize)).toBeLessThan(maxDivergence);
        const tokens = argmaxRows(logits, vocabSize);
        const numEqual = tokens.filter((token, index) => token === golden.greedyTokenIds[index]).length;
        expect(numEqual / tokens.length).toBeGreaterThan(
          minAgreements[name]?.[bound.dtype === "int4" ? "int4" : "int8"] ?? minAgreement,
        );
      }
    },
  );

  test.for(bounds)(
    "in $dtype with $kv KV and widened layers $widenedLayers a token does not depend on its chunk",
    async (bound) => {
      await using cache = await createTemporaryFolder();
      const goldens = await loadGoldens(name);
      const model = await buildFrom(goldens.checkpointFolder, { cacheFolder: cache.path, ...precisionOf(bound) });
      using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
      const [golden] = goldens.cases;
      const whole = decodeGolden(decoder, model, golden!, maxLength);
      // A chunk of one token is computed like the newest token, with fewer bits than a prompt of which it is a part.
      for (const chunkSize of bound.widenedLayers === "own" ? [5, 7] : [1, 7]) {
        const chunked = decodeGolden(decoder, model, golden!, chunkSize);
        expect(meanDivergence(whole, chunked, model.decoder.vocabSize)).toBeLessThan(0.01);
      }
    },
  );
});

test("in int4 with wide prompts a large batch is computed like in int8, and a smaller one is not", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const numSlots = MIN_SEQUENCES_IN_8_BITS;
  const options = [{ dtype: "int8" }, { dtype: "int4", widenedLayers: "own" }] as const;
  const decodeTogether = async (option: (typeof options)[number], numSequences: number): Promise<Float32Array> => {
    const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, ...option });
    using decoder = new DirectDecoder(model, { numSlots, maxLength: 16 });
    const rows = Array.from({ length: numSequences }, (_, index) => index);
    const run = (token: number): Float32Array =>
      decoder.run({ tokenIds: rows.map((row) => [token + row]), numComputed: rows.map(() => token), logitRows: rows });
    run(0);
    return run(1);
  };
  for (const [numSequences, isEqual] of [
    [numSlots, true],
    [numSlots - 1, false],
  ] as const) {
    const [int8, int4] = await Promise.all(options.map((option) => decodeTogether(option, numSequences)));
    expect(int4!.every((logit, index) => logit === int8![index])).toBe(isEqual);
  }
});

test("in int8 a token of zeros, which has no scale, stays close to float32 and does not affect its neighbours", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llava-default");
  const logits: Float32Array[] = [];
  let vocabSize = 0;
  for (const dtype of ["float32", "int8"] as const) {
    const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, dtype });
    ({ vocabSize } = model.decoder);
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 16 });
    const images = { embeddings: new Float32Array(model.decoder.hiddenSize), positions: [1] };
    logits.push(decoder.run({ tokenIds: [[5, 6, 7]], numComputed: [0], images, logitRows: [0, 1, 2] }));
  }
  expect(meanDivergence(logits[0]!, logits[1]!, vocabSize)).toBeLessThan(0.05);
});
