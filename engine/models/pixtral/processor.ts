/** Pictures in prompts of Pixtral and Mistral 3: row by row of squares, with a token at the end of each row. */
import { moduleUrl } from "../../module-url.ts";
import { createDummyInputsBuilder } from "../../multimodal/dummy-inputs.ts";
import { embeddingsGrid } from "../../multimodal/embeddings-grid.ts";
import type { MultiModalInputs, ProcessorOptions, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import { parsePixtralImageOptions, pixtralGrid, type PixtralImageOptions, type SquareGrid } from "./image-options.ts";

/** Equals Hugging Face's PixtralProcessor. */
export const pixtralInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo(context) {
    const options = parsePixtralImageOptions(encoderOptions(context));
    const numImageTokens = (size: ImageSize): number => numSquares(pixtralGrid(size, options));
    return {
      supportedLimits: { image: null },
      // An embedding and the end of the picture.
      minTokensPerItem: 2,
      maxTokensPerItem: numImageTokens(options.size),
      imageSizeWithMostFeatures: options.size,
      numImageTokens,
    };
  },
  createDummyInputs(info, { imageToken }) {
    return createDummyInputsBuilder(imageToken, info.imageSizeWithMostFeatures);
  },
  createProcessor(_, context) {
    const { imageToken, imageTokenId, pixels, tokenId } = context;
    const rowEnd = requiredToken(tokenId, "[IMG_BREAK]");
    const imageEnd = requiredToken(tokenId, "[IMG_END]");
    const options = encoderOptions(context);
    const mergeSize = parsePixtralImageOptions(options).spatial_merge_size;
    const gridOf = (item: UpdateItem, itemIndex: number, parsed: PixtralImageOptions): SquareGrid =>
      item.kind === "embeddings" ? embeddingsGrid(item, mergeSize, itemIndex) : pixtralGrid(item.imageSize, parsed);
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options,
      requestOptions: new Set(["size", "resample", ...scalingOptions]),
      checkOptions: parsePixtralImageOptions,
      numImageTokens: (size, changed) => numSquares(pixtralGrid(size, parsePixtralImageOptions(changed))),
      ...pictureFields(pixels, ["pixel_values", "image_grid_thw"]),
      promptUpdates(items, changed) {
        const parsed = parsePixtralImageOptions(changed);
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content(itemIndex) {
              const { rows, columns } = gridOf(items[itemIndex]!, itemIndex, parsed);
              const row = [...Array.from({ length: columns }, () => imageTokenId), rowEnd];
              const full = [
                ...Array.from({ length: rows }, () => row)
                  .flat()
                  .slice(0, -1),
                imageEnd,
              ];
              return { full, isEmbed: selectTokenIds(imageTokenId) };
            },
          },
        ];
      },
    };
  },
};

function numSquares({ rows, columns }: SquareGrid): number {
  return rows * columns;
}

/**
 * The checkpoint's options with the encoder's sizes. transformers has them from processor_config.json, and also does not
 * read `patch_size` of preprocessor_config.json.
 */
function encoderOptions({ preprocessorConfig, visionEncoder }: ProcessorContext): ProcessorOptions {
  const [, numFeatures] = visionEncoder.inputs[0]!.shape;
  const patchSize = Math.sqrt((numFeatures as number) / 3);
  return {
    ...preprocessorConfig,
    patch_size: patchSize,
    spatial_merge_size: visionEncoder.imageSize / patchSize,
  };
}
