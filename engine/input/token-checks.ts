/** Checks the tokens of a prompt before its images are loaded: vocabulary, length, and a placeholder for each image. */
import { EngineError } from "../contract/errors.ts";
import { countOccurrences } from "../multimodal/sequence-search.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { fewestTokensOf } from "./item-parts.ts";
import type { ItemPart } from "./item-parts.ts";
import { mayHoldFeatures, wrongPlaceholders } from "./placeholder-checks.ts";
import { checkLength } from "./prompt-length.ts";
import type { TokenizedPrompt } from "./tokenize-prompt.ts";

export interface TokenLimits {
  readonly tokenizer: Tokenizer;
  /** Null for a text-only model. */
  readonly imageInputs: ImageInputs | null;
  readonly maxModelLen: number;
  readonly vocabSize: number;
}

/**
 * @param parts The images and the items of videos.
 * @param mayBeShortened Whether the length is left to `shortenUnloaded` and `shortenExpanded`.
 * @throws EngineError `invalid_argument` or `prompt_too_long`.
 */
export function checkTokens(
  { tokenIds, isExact }: TokenizedPrompt,
  parts: readonly ItemPart[],
  mayBeShortened: boolean,
  { tokenizer, imageInputs, maxModelLen, vocabSize }: TokenLimits,
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
  const { imagePlaceholder, imagePlaceholderTokenIds } = imageInputs.processor;
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
  throw wrongPlaceholders(numPlaceholders, imagePlaceholder, parts.length);
}

/** @param others Tokens outside the vocabulary, such as the placeholder of a pipeline, whose place images take. */
function checkVocabulary(tokenIds: readonly number[], vocabSize: number, others: readonly number[]): void {
  if (tokenIds.length === 0) {
    throw new EngineError("invalid_argument", "The prompt is empty.", { parameter: "prompt" });
  }
  for (const tokenId of tokenIds) {
    if (Number.isInteger(tokenId) && tokenId >= 0 && tokenId < vocabSize) continue;
    if (others.includes(tokenId)) continue;
    throw new EngineError(
      "invalid_argument",
      `Token id ${tokenId} is outside the vocabulary, whose size is ${vocabSize}.`,
      { parameter: "prompt" },
    );
  }
}
