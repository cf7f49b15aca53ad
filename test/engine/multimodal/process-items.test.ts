/** Prompt updates that disagree with the numbers of embeddings: their model's author reads why. */
import { expect, test } from "vitest";

import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";
import { processImages, toEmbeddingItems } from "../../../engine/multimodal/process-items.ts";
import { selectTokenIds } from "../../../engine/multimodal/prompt-update.ts";
import type { PromptUpdate } from "../../../engine/multimodal/prompt-update.ts";

const imageTokenId = 7;
const rowEnd = 8;
const imageSize = { width: 20, height: 30 };
const pixelValues = { elementType: "float32", shape: [2], data: new Float32Array(2) } as const;
const images = [{ bytes: new Uint8Array(), parameter: "prompt.images[0]" }];
const promptText = { encode: async () => [], decode: () => "" };
const settings = { options: {}, promptText, signal: new AbortController().signal };

/** As a model's author writes it: each image has `numImageTokens` embeddings. */
function processorWith(numImageTokens: number, ...contents: PromptUpdate["content"][]): MultiModalProcessor {
  return {
    imagePlaceholder: "<image>",
    imagePlaceholderTokenIds: [imageTokenId],
    options: {},
    requestOptions: new Set(),
    checkOptions() {},
    numImageTokens: () => numImageTokens,
    processImages: async () => ({ fields: new Map([["pixel_values", [pixelValues]]]), imageSizes: [imageSize] }),
    fieldConfigs: () => ({ pixel_values: { kind: "batched" } }),
    promptUpdates: () => contents.map((content) => ({ mode: "replacement", target: [imageTokenId], content })),
  };
}

const twoRows = [imageTokenId, imageTokenId, rowEnd, imageTokenId, imageTokenId, rowEnd];
const masked = { full: twoRows, isEmbed: selectTokenIds(imageTokenId) };

test("an image whose places are as many as its embeddings is processed", async () => {
  const [item] = await processImages(processorWith(4, masked), images, settings);
  expect(item!.promptUpdates[0]!.content.full).toEqual(twoRows);
});

test.for<[string, number, PromptUpdate["content"][], number]>([
  ["counts tokens without an embedding", 4, [twoRows], 6],
  ["leaves a row out", 4, [[imageTokenId, imageTokenId]], 2],
  ["has an alternative of another length", 4, [masked, [imageTokenId]], 1],
])("an update that %s is rejected with both numbers", async ([, numImageTokens, contents, numPlaces]) => {
  await expect(processImages(processorWith(numImageTokens, ...contents), images, settings)).rejects.toMatchObject({
    code: "internal",
    message:
      `The model's promptUpdates have places for ${numPlaces} embeddings of an image of 20 x 30 pixels; ` +
      `its numImageTokens counts ${numImageTokens}.`,
  });
});

test("embeddings of a request are rejected if the model has another number of places for them", async () => {
  const given = (numRows: number) => ({
    embeddings: { elementType: "float32", shape: [numRows, 2], data: new Float32Array(2 * numRows) } as const,
    grid: null,
  });
  const processor = processorWith(4, masked);
  await expect(toEmbeddingItems(processor, [given(4)], settings)).resolves.toHaveLength(1);
  await expect(toEmbeddingItems(processor, [given(4), given(3)], settings)).rejects.toMatchObject({
    code: "invalid_image",
    parameter: "prompt.images[1]",
    message: "The image embeddings have 3 rows; the model has 4 places for them in the prompt.",
  });
});
