/** Pictures in prompts of GOT-OCR 2.0: the embeddings of their tiles, all pictures of a message between two tokens. */
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { numTileEmbeddings, qianfanInputs } from "../internvl/processor.ts";
import { parseInternTileOptions } from "../internvl/tiles.ts";
import type { ProcessorContext } from "../model-definition.ts";

/** Equals Hugging Face's GotOcr2Processor. */
export const gotOcr2Inputs: MultiModalInputs<ProcessorContext> = {
  ...qianfanInputs,
  createProcessingInfo: (context) => ({
    ...qianfanInputs.createProcessingInfo(context),
    minTokensPerItem: context.visionEncoder.numImageTokens,
  }),
  createProcessor(info, context) {
    const { imageTokenId, placeholderTokenId, visionEncoder } = context;
    return {
      ...qianfanInputs.createProcessor(info, context),
      markers: { imageStart: "<img>", imageEnd: "</img>\n" },
      promptUpdates(items, json) {
        const options = parseInternTileOptions(json);
        return [
          {
            mode: "replacement",
            target: [placeholderTokenId],
            content(itemIndex) {
              const length = numTileEmbeddings(items[itemIndex]!, options, visionEncoder.numImageTokens);
              return Array.from({ length }, () => imageTokenId);
            },
          },
        ];
      },
    };
  },
};
