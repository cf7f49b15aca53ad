/** Pictures in Qwen2-VL's prompts: one image token per square of patches. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import { createDummyInputsBuilder } from "../../multimodal/dummy-inputs.ts";
import { embeddingsGrid } from "../../multimodal/embeddings-grid.ts";
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { largestImageSize, parseImageOptions, squareGrid, type Qwen2VlImageOptions } from "./image-options.ts";
import { promptPositions } from "./prompt-positions.ts";

/** Equals Hugging Face's Qwen2VLProcessor for images; videos are not supported. */
export const qwen2VlInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo(context) {
    const options = checkedOptions(context);
    const imageSizeWithMostFeatures = largestImageSize(options);
    return {
      supportedLimits: { image: null },
      minTokensPerItem: 1,
      maxTokensPerItem: numSquares(imageSizeWithMostFeatures, options),
      imageSizeWithMostFeatures,
      numImageTokens: (size) => numSquares(size, options),
    };
  },
  createDummyInputs(info, { imageToken }) {
    return createDummyInputsBuilder(imageToken, info.imageSizeWithMostFeatures);
  },
  createProcessor(_, { imageToken, imageTokenId, preprocessorConfig, pixels }) {
    const { merge_size: mergeSize } = parseImageOptions(preprocessorConfig);
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      markers: { imageStart: "<|vision_start|>", imageEnd: "<|vision_end|>" },
      options: preprocessorConfig,
      requestOptions: new Set(["size", "min_pixels", "max_pixels", "resample", ...scalingOptions]),
      // As in transformers, if a checkpoint has the older names and a caller sets the newer one.
      replacedOptions: { size: ["min_pixels", "max_pixels"] },
      checkOptions: parseImageOptions,
      numImageTokens: (size, options) => numSquares(size, parseImageOptions(options)),
      ...pictureFields(pixels, ["pixel_values", "image_grid_thw"]),
      promptUpdates(items, options) {
        const parsed = parseImageOptions(options);
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content(itemIndex) {
              const item = items[itemIndex]!;
              if (item.kind === "embeddings") {
                const { rows, columns } = embeddingsGrid(item, mergeSize, itemIndex);
                return Array.from({ length: rows * columns }, () => imageTokenId);
              }
              return Array.from({ length: numSquares(item.imageSize, parsed) }, () => imageTokenId);
            },
          },
        ];
      },
      promptPositions(numTokens, images) {
        const placed = images.map(({ placeholder, tensors }) => {
          const [, rows, columns] = Array.from((tensors.get("image_grid_thw") as ItemTensor<"int64">).data, Number);
          return { offset: placeholder.offset, rows: rows! / mergeSize, columns: columns! / mergeSize };
        });
        return promptPositions(numTokens, placed);
      },
    };
  },
};

function numSquares(size: ImageSize, options: Qwen2VlImageOptions): number {
  const { rows, columns } = squareGrid(size, options);
  return rows * columns;
}

/**
 * Throws EngineError like `parseImageOptions`, and `invalid_checkpoint` for patches that the encoder does not accept.
 */
function checkedOptions({ preprocessorConfig, visionEncoder }: ProcessorContext): Qwen2VlImageOptions {
  const options = parseImageOptions(preprocessorConfig);
  const numFeatures = 3 * options.temporal_patch_size * options.patch_size ** 2;
  const [, expectedFeatures] = visionEncoder.inputs[0]!.shape;
  if (options.squareSize === visionEncoder.imageSize && numFeatures === expectedFeatures) return options;
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint's image processor makes squares of ${options.squareSize} pixels and patches of ${numFeatures} values; its vision encoder expects ${visionEncoder.imageSize} and ${expectedFeatures}.`,
  );
}
