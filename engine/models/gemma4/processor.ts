/** Gemma 4's pictures in prompts: as many tokens as a picture of this shape has squares, between two markers. */
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import type { ProcessorContext } from "../model-definition.ts";
import { requiredToken } from "../required-token.ts";
import { gemma4Grid, largestImageSize, parseGemma4ImageOptions, type Gemma4ImageOptions } from "./image-options.ts";
import { createGemma4Videos, videoToken } from "./videos.ts";

const startOfImage = "<|image>";
const endOfImage = "<image|>";

/** Equals Hugging Face's Gemma4Processor for images and videos; audio is not supported. */
export const gemma4Inputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo({ preprocessorConfig }) {
    const options = parseGemma4ImageOptions(preprocessorConfig);
    return pictureInfo(largestImageSize(options), {
      // An embedding and both markers.
      minTokensPerItem: 3,
      numImageTokens: (size) => numSquares(size, options),
    });
  },
  createProcessor(_, context) {
    const { imageToken, imageTokenId, pixels, preprocessorConfig, tokenId } = context;
    const start = requiredToken(tokenId, startOfImage);
    const end = requiredToken(tokenId, endOfImage);
    const videoTokenId = tokenId(videoToken);
    return {
      ...(videoTokenId !== null && { videos: createGemma4Videos(context) }),
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options: preprocessorConfig,
      requestOptions: new Set(["max_soft_tokens", "resample", ...scalingOptions]),
      checkOptions: parseGemma4ImageOptions,
      numImageTokens: (size, changed) => numSquares(size, parseGemma4ImageOptions(changed)),
      ...pictureFields(pixels, ["pixel_values", "image_grid_thw"]),
      promptUpdates(items, changed) {
        const options = parseGemma4ImageOptions(changed);
        return [
          {
            mode: "replacement",
            target: [imageTokenId],
            content(itemIndex) {
              const item = items[itemIndex]!;
              const length = item.kind === "embeddings" ? item.numEmbeddings : numSquares(item.imageSize, options);
              const isOfVideo = item.kind === "image" && item.isOfVideo === true;
              const feature = isOfVideo && videoTokenId !== null ? videoTokenId : imageTokenId;
              const features = Array.from({ length }, () => feature);
              return { full: [start, ...features, end], isEmbed: selectTokenIds(feature) };
            },
          },
        ];
      },
    };
  },
};

function numSquares(size: ImageSize, options: Gemma4ImageOptions): number {
  const { rows, columns } = gemma4Grid(size, options);
  return rows * columns;
}
