/** What the placeholders and image tokens of a prompt say about its images. */
import { EngineError } from "../contract/errors.ts";
import type { UpdatedPrompt } from "../multimodal/apply-prompt-updates.ts";
import { countOccurrences } from "../multimodal/sequence-search.ts";
import type { ImageInputs } from "./image-inputs.ts";

/** Whether there are enough image tokens to be the images' embeddings already. */
export function mayHoldFeatures(
  tokenIds: readonly number[],
  { imageTokenId, processor: { imagePlaceholder, imagePlaceholderTokenIds, addedTokenIds } }: ImageInputs,
  numImages: number,
  fewestTokens: number,
): boolean {
  if (imagePlaceholder === null) return true;
  const ofImages = new Set(addedTokenIds ?? [imageTokenId]);
  const numImageTokens = tokenIds.filter((tokenId) => ofImages.has(tokenId)).length;
  const isPlaceholder = imagePlaceholderTokenIds.length === 1 && imagePlaceholderTokenIds[0] === imageTokenId;
  // If there are as many placeholders as images, they are placeholders, even for images with one embedding.
  return numImageTokens >= fewestTokens && (!isPlaceholder || numImageTokens > numImages);
}

/** Occurrences in the prompt outside the ranges of items. */
export function countOutside({ tokenIds, placeholders }: UpdatedPrompt, sequence: readonly number[]): number {
  let end = 0;
  let count = 0;
  const ranges = placeholders.filter((placeholder) => placeholder !== null);
  for (const { offset, length } of ranges.sort((left, right) => left.offset - right.offset)) {
    count += countOccurrences(tokenIds.slice(end, offset), sequence);
    end = offset + length;
  }
  return count + countOccurrences(tokenIds.slice(end), sequence);
}

export function wrongPlaceholders(numPlaceholders: number, imagePlaceholder: string, numImages: number): EngineError {
  return new EngineError(
    "invalid_argument",
    `The prompt has ${numPlaceholders} image placeholders (${imagePlaceholder}) for ${numImages} images.`,
    { parameter: "prompt" },
  );
}

/** For a chat template that writes something else for pictures. */
export function unwrittenPictures(imagePlaceholder: string): EngineError {
  return new EngineError(
    "invalid_checkpoint",
    `The model cannot be shown pictures: its chat template does not write ${imagePlaceholder} for one, which is the image token by config.json (image_token_id, or image_token_index). Correct this field, or set a template that writes the token.`,
  );
}

/**
 * For a prompt that has a placeholder for each image: the model's own rules do not replace them.
 *
 * @param ignoresText Whether a target may be in the text, which was not searched.
 */
export function unplacedImages(numLeft: number, imagePlaceholder: string, ignoresText: boolean): EngineError {
  const hint = ignoresText
    ? " Conversations and parts are searched for the tokens of a target, not for its text: it may spell the placeholder without meaning an image."
    : "";
  return new EngineError(
    "invalid_argument",
    `The model's promptUpdates leave ${numLeft} image placeholders (${imagePlaceholder}) in the prompt; each image has to replace one.${hint}`,
    { parameter: "prompt" },
  );
}
