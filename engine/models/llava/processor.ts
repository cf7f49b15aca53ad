/** LLaVA 1.5's images in its prompts: every image takes the same number of image tokens, whatever its size. */
import { EngineError } from "../../errors.ts";
import type { CanonicalValue } from "../../multimodal/hasher.ts";
import type { MultiModalProcessor } from "../../multimodal/multimodal-processor.ts";

export interface LlavaProcessorOptions {
  /** Text of the image token, such as `<image>`. */
  readonly imageToken: string;
  readonly imageTokenId: number;
  /** Rows of the projector's output per image. */
  readonly numImageTokens: number;
  /** Height and width of the pixel values the vision encoder takes. */
  readonly imageSize: number;
  /** The configuration of the pixel processor. */
  readonly preprocessorConfig: CanonicalValue;
}

/** Replaces `<image>` by `<image>` once per embedding, as Hugging Face's LlavaProcessor does. */
export function createLlavaProcessor(options: LlavaProcessorOptions): MultiModalProcessor {
  const { imageToken, imageTokenId, numImageTokens, imageSize } = options;
  const target = [imageTokenId];
  const content = { full: new Array<number>(numImageTokens).fill(imageTokenId), isEmbed: null };
  return {
    imagePlaceholder: imageToken,
    imagePlaceholderTokenIds: target,
    minImageTokens: numImageTokens,
    options: options.preprocessorConfig,
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
