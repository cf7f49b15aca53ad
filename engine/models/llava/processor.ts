/** LLaVA 1.5's images in its prompts: every image takes the same number of image tokens, whatever its size. */
import { EngineError } from "../../errors.ts";
import type { MultiModalProcessor } from "../../multimodal/multimodal-processor.ts";
import type { ProcessorContext } from "../model-definition.ts";

/** Replaces `<image>` by `<image>` once per embedding, as Hugging Face's LlavaProcessor does. */
export function createLlavaProcessor(context: ProcessorContext): MultiModalProcessor {
  const { imageToken, imageTokenId, preprocessorConfig } = context;
  const { numImageTokens, imageSize } = context.visionEncoder;
  const target = [imageTokenId];
  const content = { full: new Array<number>(numImageTokens).fill(imageTokenId), isEmbed: null };
  return {
    imagePlaceholder: imageToken,
    imagePlaceholderTokenIds: target,
    minImageTokens: numImageTokens,
    options: preprocessorConfig,
    promptUpdates(images) {
      return images.map(({ shape: [, height, width] }) => {
        if (height !== imageSize || width !== imageSize) {
          throw new EngineError(
            "invalid_checkpoint",
            `The checkpoint's image processor makes pictures of ${width}x${height}; its vision encoder takes ${imageSize}x${imageSize}.`,
          );
        }
        return { kind: "replacement", target, content };
      });
    },
  };
}
