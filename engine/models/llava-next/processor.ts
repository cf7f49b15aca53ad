/** Pictures in prompts of LLaVA-NeXT and LLaVA-OneVision: one image token per embedding, as many as its shape needs. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import { createDummyInputsBuilder } from "../../multimodal/dummy-inputs.ts";
import type { MultiModalInputs, MultiModalProcessor } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { anyresLayout, largestAnyresSize, numAnyresEmbeddings } from "./anyres.ts";
import { parseAnyresOptions, type AnyresOptions } from "./image-options.ts";

/** Equals Hugging Face's LlavaNextProcessor. */
export const llavaNextInputs = createInputs({ tensors: ["pixel_values", "feature_rows"] });

/** Equals Hugging Face's LlavaOnevisionProcessor for images; videos are not supported. */
export const llavaOneVisionInputs = createInputs({
  tensors: ["pixel_values", "feature_rows", "feature_shares"],
  optionsFor: (options, numImages) => (numImages > 1 ? { ...options, has_single_tiles: true } : options),
});

function createInputs({
  tensors,
  ...hooks
}: { readonly tensors: readonly string[] } & Pick<
  MultiModalProcessor,
  "optionsFor"
>): MultiModalInputs<ProcessorContext> {
  return {
    pixelProgram: moduleUrl("./pixel-program", import.meta.url),
    createProcessingInfo(context) {
      const options = checkedOptions(context);
      return pictureInfo(largestAnyresSize(options), {
        minTokensPerItem: options.featuresPerSide ** 2,
        numImageTokens: (size) => numEmbeddings(size, options),
      });
    },
    createDummyInputs(info, { imageToken }) {
      return createDummyInputsBuilder(imageToken, info.imageSizeWithMostFeatures);
    },
    createProcessor(_, context) {
      const { imageToken, imageTokenId, pixels, preprocessorConfig } = context;
      return {
        imagePlaceholder: imageToken,
        imagePlaceholderTokenIds: [imageTokenId],
        options: preprocessorConfig,
        requestOptions: new Set(["resample", ...scalingOptions]),
        checkOptions: parseAnyresOptions,
        numImageTokens: (size, options) => numEmbeddings(size, parseAnyresOptions(options)),
        ...hooks,
        ...pictureFields(pixels, tensors),
        promptUpdates(items, options) {
          const parsed = parseAnyresOptions(options);
          return [
            {
              mode: "replacement",
              target: [imageTokenId],
              content(itemIndex) {
                const item = items[itemIndex]!;
                const length = item.kind === "image" ? numEmbeddings(item.imageSize, parsed) : item.numEmbeddings;
                return Array.from({ length }, () => imageTokenId);
              },
            },
          ];
        },
      };
    },
  };
}

function numEmbeddings(size: ImageSize, options: AnyresOptions): number {
  if (options.hasSingleTiles) return options.featuresPerSide ** 2 + 1;
  return numAnyresEmbeddings(anyresLayout(size, options), options);
}

/** Throws EngineError like `parseAnyresOptions`, and `invalid_checkpoint` for tiles that the encoder does not accept. */
function checkedOptions({ preprocessorConfig, visionEncoder: { imageSize } }: ProcessorContext): AnyresOptions {
  const options = parseAnyresOptions(preprocessorConfig);
  if (options.tile === imageSize) return options;
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint's image processor makes tiles of ${options.tile}x${options.tile}; its vision encoder expects ${imageSize}x${imageSize}.`,
  );
}
