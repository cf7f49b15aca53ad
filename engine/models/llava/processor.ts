/** LLaVA 1.5's images in prompts: every image takes the same number of image tokens, whatever its size. */
import { allOrNone } from "../../concurrent-work.ts";
import { EngineError } from "../../contract/errors.ts";
import { fieldConfig } from "../../multimodal/field-config.ts";
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { tensorOf } from "../../multimodal/picture-fields.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import { pictureInfo } from "../../multimodal/processing-info.ts";
import { invalidOption } from "../../multimodal/processor-options.ts";
import { clipRequestOptions } from "../clip/request-options.ts";
import type { ProcessorContext } from "../model-definition.ts";

/** Replaces `<image>` by one `<image>` per embedding, like Hugging Face's LlavaProcessor. */
export const llavaInputs: MultiModalInputs<ProcessorContext> = {
  createProcessingInfo({ visionEncoder: { imageSize, numImageTokens } }) {
    const largest = { width: imageSize, height: imageSize };
    return pictureInfo(largest, { minTokensPerItem: numImageTokens, numImageTokens: () => numImageTokens });
  },
  createProcessor(info, context) {
    const { imageToken, imageTokenId, placeholderTokenId, preprocessorConfig, pixels } = context;
    const { imageSize } = context.visionEncoder;
    return {
      imagePlaceholder: imageToken,
      imagePlaceholderTokenIds: [placeholderTokenId],
      options: preprocessorConfig,
      requestOptions: clipRequestOptions,
      checkOptions(options) {
        const size = pixels.outputSize(options);
        if (size === null || (size.width === imageSize && size.height === imageSize)) return;
        throw invalidOption(
          size.option,
          `makes pictures of ${size.width}x${size.height}; the vision encoder expects ${imageSize}x${imageSize}`,
        );
      },
      numImageTokens: (size) => info.numImageTokens(size),
      async processImages(images, options, signal) {
        const processed = await allOrNone(images, (image, either) => pixels.process(image, options, either), signal);
        const pixelValues = processed.map(({ tensors }) => checkedPixels(tensorOf(tensors, "pixel_values"), imageSize));
        return {
          fields: new Map([["pixel_values", pixelValues]]),
          imageSizes: processed.map((image) => image.imageSize),
        };
      },
      fieldConfigs: () => ({ pixel_values: fieldConfig.batched() }),
      promptUpdates(items) {
        return [
          {
            mode: "replacement",
            target: [placeholderTokenId],
            content(itemIndex) {
              const item = items[itemIndex]!;
              const numTokens = item.kind === "image" ? info.numImageTokens(item.imageSize) : item.numEmbeddings;
              return Array.from({ length: numTokens }, () => imageTokenId);
            },
          },
        ];
      },
    };
  },
};

function checkedPixels(pixelValues: ItemTensor, imageSize: number): ItemTensor {
  const [, height, width] = pixelValues.shape;
  if (height === imageSize && width === imageSize) return pixelValues;
  throw new EngineError(
    "invalid_checkpoint",
    `The image processor turns this image into ${width}x${height} pixels; the vision encoder expects ${imageSize}x${imageSize}.`,
  );
}
