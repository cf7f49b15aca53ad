/** Gemma 3's pictures in prompts: each has the same number of tokens, between two markers and blank lines. */
import { EngineError } from "../../contract/errors.ts";
import type { MultiModalInputs, ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import { invalidOption } from "../../multimodal/processor-options.ts";
import { selectTokenIds } from "../../multimodal/prompt-update.ts";
import { clipRequestOptions } from "../clip/request-options.ts";
import { lineBreakTokens } from "../line-break-tokens.ts";
import { llavaInputs } from "../llava/processor.ts";
import type { ProcessorContext } from "../model-definition.ts";

const startOfImage = "<start_of_image>";
const endOfImage = "<end_of_image>";

/** Equals Hugging Face's Gemma3Processor without pan and scan. */
export const gemma3Inputs: MultiModalInputs<ProcessorContext> = {
  createProcessingInfo: (context) => llavaInputs.createProcessingInfo(context),
  createProcessor(info, context) {
    const { imageToken, imageTokenId, preprocessorConfig, visionEncoder } = context;
    const startTokenId = requireToken(context, startOfImage);
    requireToken(context, endOfImage);
    const processor = llavaInputs.createProcessor(info, context);
    const features = imageToken.repeat(visionEncoder.numImageTokens);
    return {
      ...processor,
      imagePlaceholder: startOfImage,
      imagePlaceholderTokenIds: [startTokenId],
      options: preprocessorConfig,
      requestOptions: new Set([...clipRequestOptions, "do_pan_and_scan"]),
      checkOptions(options) {
        refusePanAndScan(options);
        processor.checkOptions(options);
      },
      joinTokens: lineBreakTokens(context),
      promptUpdates(items) {
        for (const [index, item] of items.entries()) {
          if (item.kind === "image" || item.numEmbeddings === visionEncoder.numImageTokens) continue;
          throw new EngineError(
            "invalid_argument",
            `A picture has ${visionEncoder.numImageTokens} embeddings in this model; got ${item.numEmbeddings}.`,
            { parameter: `prompt.images[${index}]` },
          );
        }
        return [
          {
            mode: "replacement",
            target: [startTokenId],
            content: {
              full: `\n\n${startOfImage}${features}${endOfImage}\n\n`,
              isEmbed: selectTokenIds(imageTokenId),
            },
          },
        ];
      },
    };
  },
};

function refusePanAndScan(options: ProcessorOptions): void {
  if (options.do_pan_and_scan === true) {
    throw invalidOption("do_pan_and_scan", "is true; crops of a picture are not supported, so set it to false");
  }
}

function requireToken({ tokenId }: ProcessorContext, token: string): number {
  const id = tokenId(token);
  if (id !== null) return id;
  throw new EngineError(
    "invalid_checkpoint",
    `tokenizer.json has no token ${token}, which the prompts of images need.`,
  );
}
