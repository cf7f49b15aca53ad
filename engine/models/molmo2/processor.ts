/** Molmo 2's pictures in prompts: the whole picture and its crops, or a frame of a video. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs, ProcessorOptions, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import { largestPicture, parseCropOptions, pooledGrids, type CropOptions } from "./crops.ts";
import { layOutPicture, pictureTokens, tokenTexts, type PictureToken } from "./layout.ts";
import { createMolmo2Videos } from "./videos.ts";

/** What stands for a picture in prompts. */
export const imagePlaceholder = "<|image|>";

/** Fields of processor_config.json itself, which say which tokens pictures have. */
const layoutFields = [
  "image_use_col_tokens",
  "use_single_crop_col_tokens",
  "use_single_crop_start_token",
  "video_use_col_tokens",
  "use_frame_special_tokens",
] as const;

/** Equals Hugging Face's Molmo2Processor. All tokens of a picture have an embedding of the vision encoder. */
export const molmo2Inputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo(context) {
    const options = servedOptions(context, optionsOf(context));
    const numImageTokens = (size: ImageSize): number => numTokens(size, options);
    return pictureInfo(largestPicture(options, numImageTokens), {
      minTokensPerItem: layOutPicture({ ...pooledGrids({ width: 1, height: 1 }, options) }, options).length,
      numImageTokens,
    });
  },
  createProcessor(_, context) {
    const { imageTokenId, placeholderTokenId, pixels, tokenId, visionEncoder, namedTokens = {} } = context;
    const ids = new Map(pictureTokens.map((token) => [token, requiredToken(tokenId, tokenTexts[token])]));
    const first = namedTokens.bos_token ?? namedTokens.eos_token;
    const firstTokenId = first === undefined ? null : tokenId(first);
    const idsOf = (tokens: readonly PictureToken[]): number[] => tokens.map((token) => ids.get(token)!);
    return {
      videos: createMolmo2Videos({ ...context, preprocessorConfig: optionsOf(context) }, imagePlaceholder),
      imagePlaceholder,
      imagePlaceholderTokenIds: [placeholderTokenId],
      addedTokenIds: [...ids.values()],
      options: optionsOf(context),
      requestOptions: new Set(["max_crops", ...scalingOptions]),
      checkOptions: (options) => servedOptions(context, options),
      numImageTokens: (size, options) => numTokens(size, parseCropOptions(options)),
      ...pictureFields(
        pixels,
        visionEncoder.inputs.map(({ name }) => name),
      ),
      promptUpdates(items, json) {
        const options = parseCropOptions(json);
        const contentOf = (item: UpdateItem): number[] =>
          item.kind === "image"
            ? idsOf(layOutPicture(pooledGrids(item.imageSize, options), options))
            : Array.from({ length: item.numEmbeddings }, () => imageTokenId);
        return [
          { mode: "replacement", target: [placeholderTokenId], content: (itemIndex) => contentOf(items[itemIndex]!) },
        ];
      },
      applyTokensOnly(tokenIds) {
        return firstTokenId === null || tokenIds[0] === firstTokenId ? tokenIds : [firstTokenId, ...tokenIds];
      },
    };
  },
};

/** The options of the image processor, with those of the processor as a whole. */
function optionsOf({ preprocessorConfig, processorConfig = {} }: ProcessorContext): ProcessorOptions {
  const given = layoutFields.flatMap((field) => {
    const value = processorConfig[field];
    return value === undefined ? [] : [[field, value] as const];
  });
  return { ...preprocessorConfig, ...Object.fromEntries(given) };
}

/** Throws EngineError like `parseCropOptions`, and `invalid_checkpoint` for crops that the encoder does not take. */
function servedOptions({ visionEncoder }: ProcessorContext, json: ProcessorOptions): CropOptions {
  const options = parseCropOptions(json);
  const [pixels] = visionEncoder.inputs;
  const [, numPatches, numValues] = pixels!.shape;
  if (options.patchesPerSide ** 2 === numPatches && options.patch_size ** 2 * 3 === numValues) return options;
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint's image processor makes crops of ${options.side}x${options.side} with patches of ${options.patch_size}; its vision encoder expects ${numPatches} patches of ${numValues} values.`,
  );
}

function numTokens(size: ImageSize, options: CropOptions): number {
  return layOutPicture(pooledGrids(size, options), options).length;
}
