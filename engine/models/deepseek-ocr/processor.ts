/** Pictures in prompts of DeepSeek-OCR: one image token per embedding, as many as the picture's tiles need. */
import { moduleUrl } from "../../module-url.ts";
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { pictureFields } from "../../multimodal/picture-fields.ts";
import { pictureInfo, type ImageSize } from "../../multimodal/processing-info.ts";
import { scalingOptions } from "../../multimodal/processor-options.ts";
import type { ProcessorContext } from "../model-definition.ts";
import {
  largestOcrSize,
  numOcrEmbeddings,
  ocrGrid,
  parseOcrImageOptions,
  type OcrImageOptions,
} from "./image-options.ts";

/** Equals Hugging Face's DeepseekOcr2Processor, and with ends of lines its UnlimitedOcrProcessor. */
export const ocrInputs: MultiModalInputs<ProcessorContext> = {
  pixelProgram: moduleUrl("./pixel-program", import.meta.url),
  createProcessingInfo({ preprocessorConfig }) {
    const options = parseOcrImageOptions(preprocessorConfig);
    return pictureInfo(largestOcrSize(options), {
      minTokensPerItem: numOcrEmbeddings(null, options),
      numImageTokens: (size) => numEmbeddings(size, options),
    });
  },
  createProcessor(_, { imageToken, imageTokenId, pixels, preprocessorConfig }) {
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [imageTokenId],
      options: preprocessorConfig,
      requestOptions: new Set(["min_patches", "max_patches", "resample", "background_color", ...scalingOptions]),
      checkOptions: parseOcrImageOptions,
      numImageTokens: (size, options) => numEmbeddings(size, parseOcrImageOptions(options)),
      ...pictureFields(pixels, ["pixel_values", "whole_pixel_values", "feature_rows"]),
      promptUpdates(items, options) {
        const parsed = parseOcrImageOptions(options);
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

function numEmbeddings(size: ImageSize, options: OcrImageOptions): number {
  return numOcrEmbeddings(ocrGrid(size, options), options);
}
