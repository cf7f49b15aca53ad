/** Which bytes of a prompt's text each of its tokens stands for. */
import type { PlaceholderRange } from "../multimodal/placeholder.ts";
import type { Vocabulary } from "../text/vocabulary.ts";

/** Bytes of tokens that are searched for where the text and the tokens part, so that they are not found by chance. */
const NEEDLE_BYTES = 24;
/** Far more than the text of a placeholder has, and than a tokenizer changes at once. */
const MAX_SKIPPED_BYTES = 4096;

const SPACE = 0x20;
const TAB = 0x09;
const CARRIAGE_RETURN = 0x0d;
const nothing: readonly number[] = [];

export interface AlignedPrompt {
  readonly text: string;
  readonly tokenIds: readonly number[];
  /** In ascending order. */
  readonly placeholders: readonly Pick<PlaceholderRange, "offset" | "length">[];
}

/**
 * Walks over the tokens of a prompt and its text together. Most tokens are the next bytes of the text. The others:
 *
 * - a special token that the tokenizer has added, at either end, stands for nothing;
 * - a token may have a space that the tokenizer has added: before the text, and after special tokens;
 * - the text may have white space that the tokenizer has removed: around special tokens;
 * - the tokens of an image stand for the placeholder that the text has in their place, or for nothing;
 * - where the tokenizer has changed the text before, as Unicode's normal forms do, the tokens up to the next equal bytes
 *   stand for the text up to there.
 *
 * Of several tokens for one text, the last one has all of its bytes, so that each of them begins where the text does.
 * Mutable.
 */
export class TextAlignment {
  readonly #prompt: AlignedPrompt;
  readonly #vocabulary: Vocabulary;
  readonly #text: Buffer;
  /** Bytes by token, for those that stand for other bytes than their own. */
  readonly #bytes = new Map<number, readonly number[]>();
  #placeholderIndex = 0;
  #tokenIndex = 0;
  /** The next byte of the text. */
  #at = 0;
  /** The last token for a text whose end is not found yet. */
  #openToken: number | null = null;

  constructor(prompt: AlignedPrompt, vocabulary: Vocabulary) {
    this.#prompt = prompt;
    this.#vocabulary = vocabulary;
    this.#text = Buffer.from(prompt.text);
  }

  /** Call it for all tokens from the first on, in pieces of any length. */
  alignUntil(end: number): void {
    while (this.#tokenIndex < end) {
      const placeholder = this.#prompt.placeholders[this.#placeholderIndex];
      if (placeholder?.offset === this.#tokenIndex) {
        this.#placeholderIndex += 1;
        this.#alignItem(placeholder.length);
      } else this.#alignToken();
    }
  }

  /** Call it once all tokens are aligned. Null for a token that stands for its own bytes. */
  bytesOf(index: number): readonly number[] | null {
    return this.#bytes.get(index) ?? null;
  }

  /** Call it after the last token. */
  finish(): void {
    const last = this.#openToken ?? this.#prompt.tokenIds.length - 1;
    const rest = this.#text.subarray(this.#at);
    if (last < 0 || rest.length === 0) return;
    const own = this.#openToken === null ? (this.#bytes.get(last) ?? this.#tokenBytes(last)) : nothing;
    this.#bytes.set(last, [...own, ...rest]);
  }

  /** A text that was decoded from the tokens has each of them. */
  #alignItem(length: number): void {
    const [first, end] = [this.#tokenIndex, this.#tokenIndex + length];
    this.#tokenIndex = end;
    if (this.#openToken === null) {
      let at = this.#at;
      let index = first;
      for (; index < end && this.#hasAt(at, this.#tokenBytes(index)); index++) at += this.#tokenBytes(index).length;
      if (index === end) {
        this.#at = at;
        return;
      }
    }
    for (let index = first; index < end; index++) this.#bytes.set(index, nothing);
    this.#openToken = end - 1;
  }

  #alignToken(): void {
    const index = this.#tokenIndex++;
    const bytes = this.#tokenBytes(index);
    if (this.#openToken !== null && !this.#closeAt(index)) {
      this.#bytes.set(index, nothing);
      return;
    }
    if (this.#hasAt(this.#at, bytes)) {
      this.#at += bytes.length;
      return;
    }
    if (bytes[0] === SPACE && this.#hasAt(this.#at, bytes.subarray(1))) {
      this.#at += bytes.length - 1;
      this.#bytes.set(index, [...bytes.subarray(1)]);
      return;
    }
    const numSpaces = this.#numSpaces();
    if (index > 0 && numSpaces > 0 && this.#hasAt(this.#at + numSpaces, bytes)) {
      const spaces = this.#text.subarray(this.#at, this.#at + numSpaces);
      this.#bytes.set(index - 1, [...(this.#bytes.get(index - 1) ?? this.#tokenBytes(index - 1)), ...spaces]);
      this.#at += numSpaces + bytes.length;
      return;
    }
    this.#bytes.set(index, nothing);
    if (!this.#isSpecial(index)) this.#openToken = index;
  }

  /** White space of ASCII from the next byte on. */
  #numSpaces(): number {
    let end = this.#at;
    const limit = this.#at + MAX_SKIPPED_BYTES;
    while (
      end < limit &&
      (this.#text[end] === SPACE || (this.#text[end]! >= TAB && this.#text[end]! <= CARRIAGE_RETURN))
    )
      end++;
    return end - this.#at;
  }

  /** Whether the text goes on with this token and the next ones; the open token then has the text up to there. */
  #closeAt(index: number): boolean {
    const needle = this.#needleFrom(index);
    const end = this.#at + MAX_SKIPPED_BYTES;
    const searched = this.#text.subarray(this.#at, end + needle.length);
    const offsets = [searched.indexOf(needle)];
    if (needle[0] === SPACE && needle.length > 1) offsets.push(searched.indexOf(needle.subarray(1)));
    const offset = Math.min(...offsets.filter((found) => found !== -1));
    if (needle.length === 0 || offset === Infinity) return false;
    this.#bytes.set(this.#openToken!, [...searched.subarray(0, offset)]);
    this.#at += offset;
    this.#openToken = null;
    return true;
  }

  /** The bytes of a token and of those after it, up to the next one that the text may not have. */
  #needleFrom(first: number): Buffer {
    const { tokenIds, placeholders } = this.#prompt;
    const end = placeholders[this.#placeholderIndex]?.offset ?? tokenIds.length;
    const pieces: Uint8Array[] = [];
    let numBytes = 0;
    for (let index = first; index < end && numBytes < NEEDLE_BYTES; index++) {
      if (index > first && this.#isSpecial(index)) break;
      const bytes = this.#tokenBytes(index);
      pieces.push(bytes);
      numBytes += bytes.length;
    }
    return Buffer.concat(pieces);
  }

  #hasAt(at: number, bytes: Uint8Array): boolean {
    return (
      at + bytes.length <= this.#text.length && this.#text.compare(bytes, 0, bytes.length, at, at + bytes.length) === 0
    );
  }

  #tokenBytes(index: number): Uint8Array {
    return this.#vocabulary.tokenBytes(this.#prompt.tokenIds[index]!);
  }

  #isSpecial(index: number): boolean {
    return this.#vocabulary.isSpecial(this.#prompt.tokenIds[index]!);
  }
}
