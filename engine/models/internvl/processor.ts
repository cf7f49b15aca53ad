/** Pictures in prompts of InternVL: the embeddings of all tiles between two tokens. */
import { EngineError } from "../../contract/errors.ts";
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs, UpdateItem } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import {
  internGrid,
  largestInternSize,
  numInternTiles,
  parseInternTileOptions,
  type InternTileOptions,
} from "./tiles.ts";
import { createInternVideos } from "./videos.ts";

/** Equals Hugging Face's QianfanOCRProcessor. */
export const qianfanInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo(context) {
    const { numImageTokens } = context.visionEncoder;
    const options = checkedOptions(context);
    return pictureInfo(largestInternSize(options), {
      // A tile and the tokens around it.
      minTokensPerItem: numImageTokens + 2,
      numImageTokens: (size) => numInternTiles(internGrid(size, options)) * numImageTokens,
    });
  },
  createProcessor(_, context) {
    const { imageToken, imageTokenId, placeholderTokenId, preprocessorConfig, pixels, tokenId, visionEncoder } =
      context;
    const { numImageTokens } = visionEncoder;
    const imageStart = requiredToken(tokenId, "<img>");
    const imageEnd = requiredToken(tokenId, "</img>");
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [placeholderTokenId],
      options: preprocessorConfig,
      requestOptions: new Set(["crop_to_patches", "min_patches", "max_patches", "resample", ...scalingOptions]),
      checkOptions: parseInternTileOptions,
      frameOptions: (options) => ({ ...options, crop_to_patches: false }),
      numImageTokens: (size, options) =>
        numInternTiles(internGrid(size, parseInternTileOptions(options))) * numImageTokens,
      ...pictureFields(pixels, ["pixel_values"]),
      promptUpdates(items, options) {
        const parsed = parseInternTileOptions(options);
        return [
          {
            mode: "replacement",
            target: [placeholderTokenId],
            content(itemIndex) {
              const length = numTileEmbeddings(items[itemIndex]!, parsed, numImageTokens);
              const features = Array.from({ length }, () => imageTokenId);
              return { full: [imageStart, ...features, imageEnd], isEmbed: selectTokenIds(imageTokenId) };
            },
          },
        ];
      },
    };
  },
};

/** Equals Hugging Face's InternVLProcessor. */
export const internVlInputs: MultiModalInputs<ProcessorContext> = {
  ...qianfanInputs,
  createProcessor: (info, context) => ({
    ...qianfanInputs.createProcessor(info, context),
    videos: createInternVideos(context),
  }),
};

/** Throws EngineError `invalid_argument` for embeddings of a part of a tile. */
export function numTileEmbeddings(item: UpdateItem, options: InternTileOptions, numImageTokens: number): number {
  if (item.kind === "image") return numInternTiles(internGrid(item.imageSize, options)) * numImageTokens;
  if (item.numEmbeddings % numImageTokens === 0) return item.numEmbeddings;
  throw new EngineError(
    "invalid_argument",
    `This model has ${numImageTokens} embeddings for each tile of a picture; got ${item.numEmbeddings}, which is not a multiple.`,
  );
}

/** Throws EngineError like `parseInternTileOptions`, and `invalid_checkpoint` for tiles that the encoder does not accept. */
function checkedOptions({ preprocessorConfig, visionEncoder: { imageSize } }: ProcessorContext): InternTileOptions {
  const options = parseInternTileOptions(preprocessorConfig);
  if (options.tile === imageSize) return options;
  throw new EngineError(
    "invalid_checkpoint",
    `The checkpoint's image processor makes tiles of ${options.tile}x${options.tile}; its vision encoder expects ${imageSize}x${imageSize}.`,
  );
}
