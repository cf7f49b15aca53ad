/**
 * Checks the tokens of a prompt: vocabulary, length, and a placeholder for each image, before the images are loaded and
 * when they are in their places.
 */
import { EngineError } from "../contract/errors.ts";
import type { UpdatedPrompt } from "../multimodal/apply-prompt-updates.ts";
import type { MultiModalProcessor } from "../multimodal/multimodal-processor.ts";
import { countOccurrences } from "../multimodal/sequence-search.ts";
import { writesPictures } from "./chat-prompt.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { checkLength } from "./prompt-length.ts";
import { fewestTokensOf } from "./prompt-parts.ts";
import type { ItemPart } from "./prompt-parts.ts";
import type { PromptTokenizing, TokenizedPrompt } from "./tokenize-prompt.ts";

export interface TokenLimits extends PromptTokenizing {
  readonly vocabSize: number;
}

/**
 * @param parts The images and the items of videos.
 * @param mayBeShortened Whether the length is left to `shortenUnloaded` and `shortenExpanded`.
 * @throws EngineError `invalid_argument` or `prompt_too_long`; `invalid_checkpoint` if no conversation can have an image.
 */
export function checkTokens(
  { tokenIds, isExact }: TokenizedPrompt,
  parts: readonly ItemPart[],
  mayBeShortened: boolean,
  { tokenizer, chatTemplate, imageInputs, maxModelLen, vocabSize }: TokenLimits,
): void {
  const checkNumTokens = (numTokens: number): void => {
    if (!mayBeShortened) checkLength(numTokens, maxModelLen, parts);
  };
  const { imagePlaceholderTokenIds: ofPlaceholder = [], addedTokenIds = [] } = imageInputs?.processor ?? {};
  checkVocabulary(tokenIds, vocabSize, [...ofPlaceholder, ...addedTokenIds]);
  if (imageInputs === null || imageInputs.processor.imagePlaceholder === null) {
    checkNumTokens(tokenIds.length);
    return;
  }
  const { imagePlaceholder, imagePlaceholderTokenIds, markers, placesImagesInText } = imageInputs.processor;
  const numPlaceholders = countOccurrences(tokenIds, imagePlaceholderTokenIds);
  const fewestTokens = parts.reduce((sum, part) => sum + fewestTokensOf(part, imageInputs), 0);
  if (!isExact && parts.length > 0 && mayHoldFeatures(tokenIds, imageInputs, parts.length, fewestTokens)) {
    // The length is checked again once the images are known.
    checkNumTokens(tokenIds.length);
    return;
  }
  checkNumTokens(tokenIds.length + fewestTokens - parts.length * imagePlaceholderTokenIds.length);
  if (numPlaceholders === parts.length) return;
  if (!isExact && numPlaceholders < parts.length) {
    const pieces = tokenizer.decode(tokenIds).split(imagePlaceholder);
    if (pieces.length - 1 === parts.length) return;
  }
  if (isExact && numPlaceholders === 0 && chatTemplate !== null) {
    // Parts always have their placeholders, so this is a conversation.
    const rendering = { template: chatTemplate, imagePlaceholder, markers, placesImagesInText };
    if (!writesPictures(rendering)) throw unwrittenPictures(imagePlaceholder);
  }
  throw wrongPlaceholders(numPlaceholders, imagePlaceholder, parts.length);
}

/** @param others Tokens outside the vocabulary, such as the placeholder of a pipeline, whose place images take. */
function checkVocabulary(tokenIds: readonly number[], vocabSize: number, others: readonly number[]): void {
  if (tokenIds.length === 0) {
    throw new EngineError("invalid_argument", "The prompt is empty.", { parameter: "prompt" });
  }
  const stranger = strangerAmong(tokenIds, vocabSize, others);
  if (stranger === null) return;
  throw new EngineError(
    "invalid_argument",
    `Token id ${stranger} is outside the vocabulary, whose size is ${vocabSize}.`,
    { parameter: "prompt" },
  );
}

/**
 * Checks tokens that the model itself puts into prompts: the engine could not compute the others.
 *
 * @param member Of the processor, which returned them.
 * @throws EngineError `internal`.
 */
export function checkContentTokens(
  tokenIds: readonly number[],
  member: "promptUpdates" | "numberTokens",
  { processor, vocabSize }: { readonly processor: MultiModalProcessor; readonly vocabSize: number },
): void {
  const stranger = strangerAmong(tokenIds, vocabSize, processor.addedTokenIds ?? []);
  if (stranger === null) return;
  throw new EngineError(
    "internal",
    `The model's ${member} puts the token id ${stranger} into prompts, which is outside the vocabulary, whose size is ${vocabSize}.`,
  );
}

/** The first token outside the vocabulary, which may be null in JavaScript, as text; null without one. */
function strangerAmong(tokenIds: readonly number[], vocabSize: number, others: readonly number[]): string | null {
  for (const tokenId of tokenIds) {
    if (Number.isInteger(tokenId) && tokenId >= 0 && tokenId < vocabSize) continue;
    if (!others.includes(tokenId)) return String(tokenId);
  }
  return null;
}

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
function unwrittenPictures(imagePlaceholder: string): EngineError {
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
