import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { BuiltModel } from "../../../engine/models/built-model.ts";
import { loadGoldens, pagedGoldenNames, type Goldens } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder, type TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";
import { DirectDecoder, encodeGolden } from "./direct-decoder.ts";
import { argmaxRows, decodeGolden, prefill, relativeError } from "./golden-decoding.ts";

// Fraction of the logit range by which our single precision may differ from transformers'.
const tolerance = 1e-4;
const maxLength = 512;

describe.for([...pagedGoldenNames, "qwen3-moe", "qwen3.5", "lfm2", "lfm3"] as const)("%s in float32", (name) => {
  let goldens: Goldens;
  let cache: TemporaryFolder;
  let model: BuiltModel;

  beforeAll(async () => {
    goldens = await loadGoldens(name);
    cache = await createTemporaryFolder();
    model = await buildFrom(goldens.checkpointFolder, { cacheFolder: cache.path });
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  test("image features equal those of transformers", () => {
    for (const golden of goldens.cases) {
      const features = encodeGolden(model, golden);
      if (features === null) continue;
      expect(relativeError(features, golden.imageFeatures!)).toBeLessThan(tolerance);
    }
  });

  test.for([1, 16, maxLength])("prompts in chunks of %i tokens give the logits of transformers", (chunkSize) => {
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
    for (const golden of goldens.cases) {
      const logits = decodeGolden(decoder, model, golden, chunkSize);
      expect(relativeError(logits, golden.logits)).toBeLessThan(tolerance);
      expect(argmaxRows(logits, model.decoder.vocabSize)).toEqual(golden.greedyTokenIds);
    }
  });

  test("a sequence gets the same logits next to seven sequences of other lengths", () => {
    const numSlots = 8;
    const slot = 0;
    const { vocabSize } = model.decoder;
    using decoder = new DirectDecoder(model, { numSlots, maxLength });
    for (const golden of goldens.cases) {
      const { promptTokenIds, greedyTokenIds, positions } = golden;
      prefill(decoder, model, golden, maxLength);
      for (let step = 1; step < greedyTokenIds.length; step++) {
        // Its neighbours have other lengths, with arbitrary content in their slots.
        const tokenIds = Array.from({ length: numSlots }, (_, other) => [(other * 31 + step) % vocabSize]);
        const numComputed = Array.from({ length: numSlots }, (_, other) => other * 17 + step);
        tokenIds[slot] = [greedyTokenIds[step - 1]!];
        numComputed[slot] = promptTokenIds.length + step - 1;
        const ownPosition = positions && {
          positions: positions.map((axis) => numComputed.with(slot, axis[numComputed[slot]!]!)),
        };
        const logits = decoder.run({ tokenIds, numComputed, ...ownPosition, logitRows: [slot] });
        const expected = golden.logits.subarray(step * vocabSize, (step + 1) * vocabSize);
        expect(relativeError(logits, expected)).toBeLessThan(tolerance);
      }
    }
  });
});
