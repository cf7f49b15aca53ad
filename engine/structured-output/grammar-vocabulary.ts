/** The part of a vocabulary that grammars need, as blocks of shared memory. */
import { setImmediate as nextTurn } from "node:timers/promises";

import { refuseStructuredOutput } from "./refusal.ts";
import { buildTokenTries } from "./token-trie.ts";
import type { TokenTrie } from "./token-trie.ts";

export interface GrammarVocabulary {
  /** Length of a row of logits. Ids without a token are never allowed. */
  readonly vocabSize: number;
  /** The bytes of token i start where those of token i - 1 end. A token that is not text has none. */
  readonly tokenBytes: Uint8Array<SharedArrayBuffer>;
  /** [vocabSize] */
  readonly tokenEnds: Uint32Array<SharedArrayBuffer>;
  /** All tokens with bytes, except end tokens. */
  readonly tries: readonly TokenTrie[];
  /** Not empty. */
  readonly eosTokenIds: readonly number[];
}

/** The part of a tokenizer that is needed here. */
export interface TokenTexts {
  /** UTF-8. A token may contain part of a character. */
  tokenBytes(tokenId: number): Uint8Array;
  isSpecial(tokenId: number): boolean;
}

const noBytes = new Uint8Array();
/** Takes a few milliseconds. */
const TOKENS_PER_TURN = 4096;

/**
 * Special tokens are not text, so no grammar allows them. Yields to the event loop every few milliseconds. Throws
 * EngineError `invalid_argument` for a model without end tokens, whose texts could not end where their grammar does.
 */
export async function createGrammarVocabulary(
  texts: TokenTexts,
  vocabSize: number,
  eosTokenIds: readonly number[],
): Promise<GrammarVocabulary> {
  const ends = eosTokenIds.filter((tokenId) => tokenId < vocabSize);
  if (ends.length === 0)
    refuseStructuredOutput("The model has no token that ends a text, which structured output needs");
  const tokens: Uint8Array[] = [];
  const tokenEnds = new Uint32Array(new SharedArrayBuffer(vocabSize * Uint32Array.BYTES_PER_ELEMENT));
  let numBytes = 0;
  for (let tokenId = 0; tokenId < vocabSize; tokenId++) {
    if (tokenId % TOKENS_PER_TURN === 0) await nextTurn();
    const bytes = texts.isSpecial(tokenId) ? noBytes : texts.tokenBytes(tokenId);
    tokens.push(bytes);
    numBytes += bytes.length;
    tokenEnds[tokenId] = numBytes;
  }
  const tokenBytes = new Uint8Array(new SharedArrayBuffer(numBytes));
  for (const [tokenId, bytes] of tokens.entries()) {
    if (tokenId % TOKENS_PER_TURN === 0) await nextTurn();
    tokenBytes.set(bytes, tokenEnds[tokenId]! - bytes.length);
  }
  const tries = await buildTokenTries({ tokenBytes, tokenEnds }, new Set(ends));
  return { vocabSize, tokenBytes, tokenEnds, tries, eosTokenIds: ends };
}

/** The bytes of one token, as a view. */
export function bytesOf({ tokenBytes, tokenEnds }: GrammarVocabulary, tokenId: number): Uint8Array {
  return tokenBytes.subarray(tokenId === 0 ? 0 : tokenEnds[tokenId - 1], tokenEnds[tokenId]);
}
