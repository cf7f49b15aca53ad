import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import {
  featureRows,
  largestOcrSize,
  numOcrEmbeddings,
  ocrGrid,
  ocrImageOptions,
  parseOcrImageOptions,
  type OcrModelOptions,
} from "../../../../engine/models/deepseek-ocr/image-options.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs, type GoldenInputs } from "../../input/golden-inputs.ts";

const file = new URL("../../../fixtures/hub/deepseek-ocr-2/pictures.json", import.meta.url);
/** By picture: SHA-256 of the pixel values. */
const recorded = JSON.parse(readFileSync(file, "utf8")) as Record<string, { tiles: string; whole: string }>;
const never = new AbortController().signal;

const first = { tile: 640, whole: 1024, tileFeatures: 10, wholeFeatures: 16, endsLines: true };
const second = { tile: 768, whole: 1024, tileFeatures: 12, wholeFeatures: 16, endsLines: false };
const optionsOf = (model: OcrModelOptions, more = {}) => parseOcrImageOptions({ ...ocrImageOptions(model), ...more });

async function process(inputs: GoldenInputs, image: ImagePart): Promise<ProcessedPrompt> {
  const tokenIds = [inputs.imageInputs!.imageTokenId];
  const prompt = { kind: "tokens", tokenIds, images: [image] } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return inputs.inputProcessor.process(request, never);
}

test("pixel values are bit-identical to those of transformers", async () => {
  await using inputs = await createHubInputs("deepseek-ocr-2");
  expect(Object.keys(recorded)).toHaveLength(5);
  for (const [picture, { tiles, whole }] of Object.entries(recorded)) {
    const { images } = await process(inputs, { type: "image", reference: await hubPictureReference(picture) });
    const hashOf = (name: string): string => {
      const { data } = images[0]!.tensors.get(name) as ItemTensor<"float32">;
      return createHash("sha256")
        .update(Buffer.from(data.buffer, data.byteOffset, data.byteLength))
        .digest("hex");
    };
    expect({ picture, tiles: hashOf("pixel_values"), whole: hashOf("whole_pixel_values") }).toEqual({
      picture,
      tiles,
      whole,
    });
  }
});

test("a page has as many tokens as DeepSeek's pages say", () => {
  const page = { width: 1240, height: 1754 };
  const numTokens = (model: OcrModelOptions, size = page): number => {
    const options = optionsOf(model);
    return numOcrEmbeddings(ocrGrid(size, options), options);
  };
  // Two columns and three rows of tiles.
  expect(ocrGrid(page, optionsOf(first))).toEqual({ rows: 3, columns: 2 });
  expect(numTokens(first)).toBe(30 * 21 + 16 * 17 + 1);
  expect(numTokens(second)).toBe(6 * 144 + 256 + 1);
  expect(numTokens(first, { width: 640, height: 600 })).toBe(273);
  expect(numTokens(second, { width: 768, height: 1 })).toBe(257);
});

test("lines go through all tiles side by side and end in a row of their own", () => {
  const small = { tile: 2, whole: 2, tileFeatures: 2, wholeFeatures: 2, endsLines: true };
  const rows = [...featureRows({ rows: 1, columns: 2 }, small)].map(Number);
  expect(rows).toEqual([0, 1, 4, 5, 12, 2, 3, 6, 7, 12, 8, 9, 12, 10, 11, 12, 13]);
});

test("without ends of lines, tiles follow each other", () => {
  const small = { tile: 2, whole: 2, tileFeatures: 2, wholeFeatures: 2, endsLines: false };
  const rows = [...featureRows({ rows: 1, columns: 2 }, small)].map(Number);
  expect(rows).toEqual(Array.from({ length: 13 }, (_, row) => row));
});

test.for([first, second])("no picture has more embeddings than the largest", (model) => {
  for (const max_patches of [2, 6, 7, 9]) {
    const options = optionsOf(model, { max_patches });
    const most = numOcrEmbeddings(ocrGrid(largestOcrSize(options), options), options);
    for (let width = 1; width < 8000; width += 211) {
      for (let height = 1; height < 8000; height += 223) {
        const grid = ocrGrid({ width, height }, options);
        expect(numOcrEmbeddings(grid, options)).toBeLessThanOrEqual(most);
      }
    }
  }
});

test.for<[object, string, string]>([
  [{ min_patches: 7 }, "min_patches", "is 7; expected at most max_patches, 6"],
  [{ max_patches: 1 }, "max_patches", "is 1; expected at least 2"],
  [{ size: { height: 1280, width: 1280 } }, "size", "is 1280x1280; this model's is 1024x1024"],
  [{ tile_size: 512 }, "tile_size", "is 512; this model's is 640"],
  [{ crop_to_patches: false }, "crop_to_patches", "with tiles"],
  [{ background_color: [1, 2] }, "background_color", "three integers"],
])("refuses %j by its path", ([changes, parameter, problem]) => {
  expect(() => optionsOf(first, changes)).toThrow(
    expect.objectContaining({ code: "invalid_checkpoint", parameter, message: expect.stringContaining(problem) }),
  );
});
