/** Pictures in prompts of models with Pixtral's tower: row by row of squares. */
import { moduleUrl } from "../../module-url.ts";
import { embeddingsGrid } from "../../multimodal/embeddings-grid.ts";
import type { MultiModalInputs, ProcessorOptions, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions, unsupportedOption } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import { parsePixtralImageOptions, squareGrid, type PixtralImageOptions } from "./image-options.ts";

/** The tokens of a picture in a prompt. */
type PictureSpeller = (item: UpdateItem, itemIndex: number, options: PixtralImageOptions) => readonly number[];

interface PictureSpelling {
  readonly roundsTo: PixtralImageOptions["rounds_to"];
  /** Tokens of the smallest picture. */
  readonly minTokens: number;
  createSpeller(this: void, context: ProcessorContext): PictureSpeller;
}

/** Equals Hugging Face's PixtralProcessor. */
export const pixtralInputs = createInputs({
  roundsTo: "squares",
  // An embedding and the end of the picture.
  minTokens: 2,
  createSpeller({ imageTokenId, tokenId }) {
    const rowEnd = requiredToken(tokenId, "[IMG_BREAK]");
    const imageEnd = requiredToken(tokenId, "[IMG_END]");
    return (item, itemIndex, options) => {
      const { rows, columns } =
        item.kind === "embeddings"
          ? embeddingsGrid(item, options.spatial_merge_size, itemIndex)
          : squareGrid(item.imageSize, options);
      const row = [...Array.from({ length: columns }, () => imageTokenId), rowEnd];
      const all = Array.from({ length: rows }, () => row).flat();
      return [...all.slice(0, -1), imageEnd];
    };
  },
});

/** Equals Hugging Face's LightOnOcrProcessor, whose image processor rounds to patches. */
export const lightOnOcrInputs = createInputs({
  roundsTo: "patches",
  minTokens: 1,
  createSpeller:
    ({ imageTokenId }) =>
    (item, _, options) => {
      const length = item.kind === "embeddings" ? item.numEmbeddings : numSquares(item.imageSize, options);
      return Array.from({ length }, () => imageTokenId);
    },
});

function createInputs({ roundsTo, minTokens, createSpeller }: PictureSpelling): MultiModalInputs<ProcessorContext> {
  return {
    pixelProgram: moduleUrl("./pixel-program", import.meta.url),
    createProcessingInfo(context) {
      const options = parsePixtralImageOptions(encoderOptions(context, roundsTo));
      return pictureInfo(options.size, {
        minTokensPerItem: minTokens,
        numImageTokens: (size) => numSquares(size, options),
      });
    },
    createProcessor(_, context) {
      const { imageToken, imageTokenId, pixels } = context;
      const tokensOf = createSpeller(context);
      return {
        imagePlaceholder: imageToken,
        imagePlaceholderTokenIds: [imageTokenId],
        options: encoderOptions(context, roundsTo),
        requestOptions: new Set(["size", "resample", ...scalingOptions]),
        checkOptions: parsePixtralImageOptions,
        numImageTokens: (size, changed) => numSquares(size, parsePixtralImageOptions(changed)),
        ...pictureFields(pixels, ["pixel_values", "image_grid_thw"]),
        promptUpdates(items, changed) {
          const parsed = parsePixtralImageOptions(changed);
          return [
            {
              mode: "replacement",
              target: [imageTokenId],
              content: (itemIndex) => ({
                full: tokensOf(items[itemIndex]!, itemIndex, parsed),
                isEmbed: selectTokenIds(imageTokenId),
              }),
            },
          ];
        },
      };
    },
  };
}

function numSquares(size: ImageSize, options: PixtralImageOptions): number {
  const { rows, columns } = squareGrid(size, options);
  return rows * columns;
}

/**
 * The checkpoint's options with the encoder's sizes. Where sides are rounded to squares, transformers has the sizes from
 * processor_config.json, and also does not read `patch_size` of preprocessor_config.json.
 *
 * @throws EngineError `unsupported_model` for patches of another size that it reads.
 */
function encoderOptions(
  { preprocessorConfig, visionEncoder }: ProcessorContext,
  roundsTo: PictureSpelling["roundsTo"],
): ProcessorOptions {
  const [, numFeatures] = visionEncoder.inputs[0]!.shape;
  const patchSize = Math.sqrt((numFeatures as number) / 3);
  const { patch_size: given } = parsePixtralImageOptions({ patch_size: patchSize, ...preprocessorConfig });
  if (roundsTo === "patches" && given !== patchSize) {
    throw unsupportedOption("patch_size", `is ${given}; the vision encoder's patches have ${patchSize} pixels`);
  }
  return {
    ...preprocessorConfig,
    patch_size: patchSize,
    spatial_merge_size: visionEncoder.imageSize / patchSize,
    rounds_to: visionEncoder.imageOptions?.rounds_to ?? roundsTo,
  };
}
