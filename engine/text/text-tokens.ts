/** Special tokens that are text for a request: markers of tool calls and of thinking. */
import type { Vocabulary } from "./tokenizer.ts";

/** A vocabulary in which these tokens are not special. */
export function withTextTokens(vocabulary: Vocabulary, textTokenIds: readonly number[]): Vocabulary {
  if (textTokenIds.length === 0) return vocabulary;
  return {
    tokenBytes: (tokenId) => vocabulary.tokenBytes(tokenId),
    isSpecial: (tokenId) => !textTokenIds.includes(tokenId) && vocabulary.isSpecial(tokenId),
  };
}
