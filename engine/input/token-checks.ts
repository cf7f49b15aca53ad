/** Checks the tokens of a prompt before its images are loaded: vocabulary, length, and a placeholder for each image. */
import { EngineError } from "../contract/errors.ts";
import type { MultiModalProcessor } from "../multimodal/multimodal-processor.ts";
import { countOccurrences } from "../multimodal/sequence-search.ts";
import { writesPictures } from "./chat-prompt.ts";
import { fewestTokensOf } from "./item-parts.ts";
import type { ItemPart } from "./item-parts.ts";
import { mayHoldFeatures, unwrittenPictures, wrongPlaceholders } from "./placeholder-checks.ts";
import { checkLength } from "./prompt-length.ts";
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
