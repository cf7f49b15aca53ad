/** What a vision model says about its inputs: everything that shared code needs to put images into its prompts. */
import type { CanonicalValue } from "./hasher.ts";
import type { PromptUpdate } from "./prompt-update.ts";

/** One image as the vision encoder takes it. */
export interface ProcessedImage {
  /** Row-major [channels, height, width], float32, normalised. */
  readonly pixelValues: Float32Array;
  readonly shape: readonly [channels: number, height: number, width: number];
}

export interface MultiModalProcessor {
  /** The text that stands for one image in a prompt. */
  readonly imagePlaceholder: string;
  /** The tokens of `imagePlaceholder` in a prompt. */
  readonly imagePlaceholderTokenIds: readonly number[];
  /** Fewest tokens that an image takes, known before it is fetched. */
  readonly minImageTokens: number;
  /** The whole configuration of the processor, part of every item's hash. */
  readonly options: CanonicalValue;
  /**
   * One update per image, in the order of the images. Throws EngineError `invalid_checkpoint` when the processed image
   * does not fit the vision encoder.
   */
  promptUpdates(images: readonly ProcessedImage[]): readonly PromptUpdate[];
}
