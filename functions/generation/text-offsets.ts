/** Places of tokens in a text. */

/**
 * Counts code points, as OpenAI and vLLM do in Python, over the tokens of a text. Mutable. A token may be a part of a
 * character, which counts once, with its last token.
 */
export class TextOffsets {
  // A byte order mark from the model is ordinary text.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #numCodePoints = 0;

  /**
   * Returns the offset of the next token. It is that of the character if the token continues one.
   *
   * @param bytes Of the text that the token stands for, UTF-8.
   */
  next(bytes: readonly number[]): number {
    const isContinuation = bytes.length === 0 || (bytes[0]! & 0xc0) === 0x80;
    // Ends a character that is incomplete, which becomes U+FFFD.
    if (!isContinuation) this.#numCodePoints += numCodePoints(this.#decoder.decode());
    const offset = this.#numCodePoints;
    this.#numCodePoints += numCodePoints(this.#decoder.decode(Uint8Array.from(bytes), { stream: true }));
    return offset;
  }
}

function numCodePoints(text: string): number {
  let count = text.length;
  for (let index = 1; index < text.length; index++) if (text.codePointAt(index - 1)! > 0xffff) count--;
  return count;
}
