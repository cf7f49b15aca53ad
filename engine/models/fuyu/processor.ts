/** Fuyu's images in prompts: rows of patches, each ended by a newline, before the text. */
import { allOrNone } from "../../concurrent-work.ts";
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import { embeddingsGrid } from "../../multimodal/embeddings-grid.ts";
import { fieldConfig } from "../../multimodal/field-config.ts";
import type { MultiModalInputs, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { promptIndexTargets, selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { PromptUpdate } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { fuyuPatchGrid, fuyuRequestOptions, parseFuyuImageOptions } from "./image-options.ts";
import type { FuyuImageOptions, PatchGrid } from "./image-options.ts";

/**
 * The layout of Hugging Face's FuyuProcessor: for each row of patches, an image token per patch and a newline; then the
 * token that starts a text; and at the end of a prompt with an image the token that starts an answer. If the tokenizer
 * puts its own token at the beginning of a prompt, the image replaces it. A prompt without an image is left unchanged.
 */
export const fuyuInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixels", import.meta.url),
  createProcessingInfo({ preprocessorConfig }) {
    const options = parseFuyuImageOptions(preprocessorConfig);
    const numImageTokens = (size: ImageSize): number => numPatches(size, options);
    return {
      supportedLimits: { image: 1 },
      // One patch, a newline and the start of the text.
      minTokensPerItem: 3,
      maxTokensPerItem: numImageTokens(options.size),
      imageSizeWithMostFeatures: options.size,
      numImageTokens,
    };
  },
  createProcessor(_, { imageTokenId, preprocessorConfig, pixels, tokenId }) {
    const newlineId = requiredToken(tokenId, "|NEWLINE|");
    const beginningOfText = requiredToken(tokenId, "<s>");
    const beginningOfAnswer = requiredToken(tokenId, "<0x04>");
    const tokenizersBeginning = tokenId("|ENDOFTEXT|");
    return {
      imagePlaceholder: null,
      imagePlaceholderTokenIds: [],
      options: preprocessorConfig,
      requestOptions: fuyuRequestOptions,
      checkOptions: parseFuyuImageOptions,
      numImageTokens: (size, options) => numPatches(size, parseFuyuImageOptions(options)),
      async processImages(images, options, signal) {
        const processed = await allOrNone(images, (image, either) => pixels.process(image, options, either), signal);
        return {
          fields: new Map([["image_patches", processed.flatMap(({ tensors }) => tensors.get("image_patches") ?? [])]]),
          imageSizes: processed.map(({ imageSize }) => imageSize),
        };
      },
      fieldConfigs: () => ({ image_patches: fieldConfig.batched() }),
      promptUpdates(items, options): readonly PromptUpdate[] {
        const plan = parseFuyuImageOptions(options);
        const content = (itemIndex: number) => {
          const item = items[itemIndex]!;
          const { numColumns, numRows } =
            item.kind === "embeddings" ? givenGrid(item, itemIndex) : fuyuPatchGrid(item.imageSize, plan);
          const row = [...Array.from({ length: numColumns }, () => imageTokenId), newlineId];
          const full = [...Array.from({ length: numRows }, () => row).flat(), beginningOfText];
          return { full, isEmbed: selectTokenIds(imageTokenId) };
        };
        return [{ mode: "insertion", target: promptIndexTargets.start(), content }];
      },
      applyTokensOnly(tokenIds, numImages) {
        if (numImages === 0) return tokenIds;
        const start = tokenIds.findIndex((tokenId) => tokenId !== tokenizersBeginning);
        const text = start === -1 ? [] : tokenIds.slice(start);
        return text.at(-1) === beginningOfAnswer ? text : [...text, beginningOfAnswer];
      },
    };
  },
};

/** Every patch is one embedding. */
function givenGrid(item: Extract<UpdateItem, { readonly kind: "embeddings" }>, itemIndex: number): PatchGrid {
  const { rows, columns } = embeddingsGrid(item, 1, itemIndex);
  return { numRows: rows, numColumns: columns };
}

function numPatches(size: ImageSize, options: FuyuImageOptions): number {
  const { numColumns, numRows } = fuyuPatchGrid(size, options);
  return numColumns * numRows;
}

function requiredToken(tokenId: ProcessorContext["tokenId"], token: string): number {
  const id = tokenId(token);
  if (id !== null) return id;
  throw new EngineError("invalid_checkpoint", `tokenizer.json has no token ${token}, which prompts for Fuyu need.`);
}
