/** Pictures in prompts of LLaVA-NeXT and LLaVA-OneVision: one image token per embedding, as many as its shape needs. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs, MultiModalProcessor, VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { anyresLayout, largestAnyresSize, numAnyresEmbeddings } from "./anyres.ts";
import { parseAnyresOptions, type AnyresOptions } from "./image-options.ts";
import { createOneVisionVideos } from "./videos.ts";

/** Equals Hugging Face's LlavaNextProcessor. */
export const llavaNextInputs = createInputs({ tensors: ["pixel_values", "feature_rows"] });

/** Equals Hugging Face's LlavaOnevisionProcessor. */
export const llavaOneVisionInputs = createInputs({
  tensors: ["pixel_values", "feature_rows", "feature_shares"],
  createVideos: createOneVisionVideos,
  optionsFor: (options, numImages) => (numImages > 1 ? { ...options, has_single_tiles: true } : options),
});

interface Family extends Pick<MultiModalProcessor, "optionsFor"> {
  readonly tensors: readonly string[];
  readonly createVideos?: (context: ProcessorContext) => VideoInputs;
}

function createInputs({ tensors, createVideos, ...hooks }: Family): MultiModalInputs<ProcessorContext> {
  return {
    pixelProgram: moduleUrl("./pixel-program", import.meta.url),
    createProcessingInfo(context) {
      const options = checkedOptions(context);
      return pictureInfo(largestAnyresSize(options), {
        minTokensPerItem: options.featuresPerSide ** 2,
        numImageTokens: (size) => numEmbeddings(size, options),
      });
    },
    createProcessor(_, context) {
      const { imageToken, imageTokenId, pixels, preprocessorConfig, tokenId } = context;
      const videos = createVideos?.(context);
      const videoTokenId = (videos && tokenId(videos.placeholder)) ?? imageTokenId;
      return {
        ...(videos && { videos }),
        frameOptions: (options) => ({ ...options, has_single_tiles: true }),
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
                const isOfVideo = item.kind === "image" && item.isOfVideo === true;
                return Array<number>(length).fill(isOfVideo ? videoTokenId : imageTokenId);
              },
            },
          ];
        },
      };
    },
  };
}

function numEmbeddings(size: ImageSize, options: AnyresOptions): number {
  if (options.frame !== null) return options.frame.perSide ** 2 + Number(options.frame.isLast);
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
