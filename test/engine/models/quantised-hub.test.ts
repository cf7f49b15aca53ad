/** Decoders of families that only the hub's recordings have, quantised, beside their own float32, which is transformers'. */
import { expect, test } from "vitest";

import type { KvPrecision } from "../../../engine/models/graph-context.ts";
import { hubCases, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom, type DirectBuildOptions } from "./direct-build.ts";
import { DirectDecoder } from "./direct-decoder.ts";
import { meanDivergence } from "./golden-decoding.ts";

const maxLength = 192;
const families = [
  "deepseek-ocr-2",
  "dots-ocr",
  "glm-4.5",
  "glm-4.5v",
  "got-ocr-2",
  "granite-for-docling",
  "granite4-vision",
  "hunyuan-dense",
  "hunyuan-ocr",
  "lfm2-vl",
  "lfm3-vl",
  "minicpm-v-4.7",
  "paddleocr-vl",
  "qianfan-ocr",
  "qwen3.5-moe",
];

const int8Kv: KvPrecision = { kind: "int8", steps: null };

// Measured with 8 bits 0.001 to 0.05 and with 4 bits 0.09 to 4.1, where recurrent layers carry errors on; with 8-bit keys
// and values 0.0001 to 0.008.
test.for(families)(
  "%s stays close to float32 with weights of 8 and 4 bits and with keys and values of 8",
  async (name) => {
    await using folder = await createTemporaryFolder();
    await writeHubCheckpoint(name, "v4", folder.path);
    const { promptTokenIds, greedyTokenIds } = hubCases(name).find((recorded) => recorded.pictures.length === 0)!;
    const tokenIds = [...promptTokenIds, ...greedyTokenIds];
    const sampleTokens = async (): Promise<number[]> => Array.from({ length: 64 }, (_, index) => (index * 7 + 3) % 90);
    const logitsOf = async (options: Partial<DirectBuildOptions>) => {
      const model = await buildFrom(folder.path, { cacheFolder: folder.path, maxModelLen: maxLength, ...options });
      using decoder = new DirectDecoder(model, { numSlots: 1, maxLength });
      const logits = decoder.run({ tokenIds: [tokenIds], numComputed: [0], logitRows: [...tokenIds.keys()] });
      return { logits, vocabSize: model.decoder.vocabSize };
    };
    const { logits: exact, vocabSize } = await logitsOf({});
    const quantised = [
      { options: { dtype: "int8" }, maxDivergence: 0.1 },
      { options: { dtype: "int4" }, maxDivergence: 6 },
      { options: { kvPrecision: int8Kv, sampleTokens }, maxDivergence: 0.05 },
    ] as const;
    for (const { options, maxDivergence } of quantised) {
      const { logits } = await logitsOf(options);
      expect(logits).not.toEqual(exact);
      expect(meanDivergence(exact, logits, vocabSize)).toBeLessThan(maxDivergence);
    }
  },
);
