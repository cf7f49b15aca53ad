/** Turns the tokens of an output into text as they arrive, without splitting characters. */
import type { Vocabulary } from "./tokenizer.ts";

/**
 * Decodes each token once. Tokens are a stream of UTF-8 bytes, of which only whole characters are emitted. The texts of
 * all calls together equal the text of all tokens, however they are divided. Invalid UTF-8 becomes U+FFFD, and so does
 * an incomplete character at the end.
 */
export class IncrementalDetokenizer {
  readonly #vocabulary: Vocabulary;
  readonly #skipsSpecialTokens: boolean;
  // A byte order mark from the model is ordinary text.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(vocabulary: Vocabulary, options: { readonly skipSpecialTokens: boolean }) {
    this.#vocabulary = vocabulary;
    this.#skipsSpecialTokens = options.skipSpecialTokens;
  }

  /** Returns the characters that `tokenId` completes; "" while a character is incomplete. */
  append(tokenId: number): string {
    if (this.#skipsSpecialTokens && this.#vocabulary.isSpecial(tokenId)) return "";
    return this.#decoder.decode(this.#vocabulary.tokenBytes(tokenId), { stream: true });
  }

  /** Returns U+FFFD for an incomplete character, and resets the detokenizer. */
  finish(): string {
    return this.#decoder.decode();
  }
}
