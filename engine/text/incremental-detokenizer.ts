/** Turns the tokens of one output into text as they come, without ever showing half a character. */
import type { Vocabulary } from "./tokenizer.ts";

/**
 * Decodes each token once: the bytes of tokens are a stream of UTF-8, of which only whole characters are text. The
 * text of all calls together is the text of all tokens, however they are divided; bytes that are no UTF-8 become
 * U+FFFD, an unfinished character at the very end too.
 */
export class IncrementalDetokenizer {
  readonly #vocabulary: Vocabulary;
  readonly #skipsSpecialTokens: boolean;
  // A byte order mark that a model writes is text like any other.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(vocabulary: Vocabulary, options: { readonly skipSpecialTokens: boolean }) {
    this.#vocabulary = vocabulary;
    this.#skipsSpecialTokens = options.skipSpecialTokens;
  }

  /** The characters that `tokenId` completes; "" while one is open. */
  append(tokenId: number): string {
    if (this.#skipsSpecialTokens && this.#vocabulary.isSpecial(tokenId)) return "";
    return this.#decoder.decode(this.#vocabulary.tokenBytes(tokenId), { stream: true });
  }

  /** U+FFFD for a character that was never finished. The detokenizer then begins anew. */
  finish(): string {
    return this.#decoder.decode();
  }
}
