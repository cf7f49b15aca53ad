/** Finds earlier occurrences of a sequence's last tokens, and what followed them. */
import type { SpeculativeConfig } from "../contract/speculative-config.ts";
import type { Sequence } from "./sequence.ts";

type LookupSizes = Pick<SpeculativeConfig, "promptLookupMax" | "promptLookupMin">;
type LookupTokens = Pick<Sequence, "promptTokenIds" | "outputTokenIds" | "images">;

/** Odd, so that no bit is lost when hashes are multiplied modulo 2^32. */
const HASH_BASE = 0x9e3779b1;
const EMPTY = 0;
const FIRST_CAPACITY = 64;

/**
 * Mutable. As vLLM's proposer: the longest n-gram that ends the sequence and occurs earlier, and of its occurrences the
 * first one, which has the most tokens after it. Each size of an n-gram has a table of starts, so a token costs one entry
 * and one look-up per size, however long the sequence is. A match of hashes is compared token by token. The tables take 8
 * to 16 bytes per token and size.
 *
 * Tokens of images are no text: no n-gram contains them, and no draft.
 */
export class PromptLookup {
  readonly #tokens: LookupTokens;
  /** By size, from `promptLookupMin` on. */
  readonly #tables: readonly NgramTable[];
  /** Tokens that the tables know. */
  #numRead = 0;
  /** The first token after the last image that was read. */
  #textStart = 0;
  /** The next image to read. */
  #nextImage = 0;

  /** @param tokens Of the live sequence, whose output grows. */
  constructor(sizes: LookupSizes, tokens: LookupTokens) {
    this.#tokens = tokens;
    const numSizes = sizes.promptLookupMax - sizes.promptLookupMin + 1;
    this.#tables = Array.from({ length: numSizes }, (_, index) => new NgramTable(sizes.promptLookupMin + index));
  }

  /** At most `maxTokens` tokens that may follow the sequence; empty if its last tokens occur nowhere before. */
  propose(maxTokens: number): number[] {
    this.#readNewTokens();
    for (let index = this.#tables.length - 1; index >= 0; index--) {
      const { size } = this.#tables[index]!;
      const start = this.#numRead - size;
      if (start < this.#textStart) continue;
      const match = this.#tables[index]!.find(start, this.#tokenAt);
      if (match !== null) return this.#tokensFrom(match + size, maxTokens);
    }
    return [];
  }

  #tokensFrom(start: number, maxTokens: number): number[] {
    const nextImage = this.#tokens.images.find(({ placeholder }) => placeholder.offset >= start);
    const end = Math.min(start + maxTokens, this.#numRead, nextImage?.placeholder.offset ?? Infinity);
    return Array.from({ length: end - start }, (_, offset) => this.#tokenAt(start + offset));
  }

  #readNewTokens(): void {
    const { promptTokenIds, outputTokenIds, images } = this.#tokens;
    const numTokens = promptTokenIds.length + outputTokenIds.length;
    while (this.#numRead < numTokens) {
      const placeholder = images[this.#nextImage]?.placeholder;
      if (placeholder?.offset === this.#numRead) {
        this.#nextImage++;
        this.#numRead += placeholder.length;
        this.#textStart = this.#numRead;
        continue;
      }
      // The token is what follows the n-grams before it.
      this.#addNgramsBefore(this.#numRead);
      this.#numRead++;
    }
  }

  #addNgramsBefore(end: number): void {
    for (const table of this.#tables) {
      const start = end - table.size;
      if (start < this.#textStart) return;
      table.add(start, this.#tokenAt);
    }
  }

  readonly #tokenAt = (index: number): number => {
    const { promptTokenIds, outputTokenIds } = this.#tokens;
    const numPrompt = promptTokenIds.length;
    return (index < numPrompt ? promptTokenIds[index] : outputTokenIds[index - numPrompt])!;
  };
}

type TokenAt = (index: number) => number;

/** Mutable: the first start of each n-gram of one size, by open addressing. */
class NgramTable {
  readonly size: number;
  /** Starts plus one; `EMPTY` where there is none. The capacity is a power of 2 and at least twice the number of entries. */
  #entries = new Int32Array(FIRST_CAPACITY);
  #numEntries = 0;

  constructor(size: number) {
    this.size = size;
  }

  /** Does nothing if the n-gram is known. */
  add(start: number, tokenAt: TokenAt): void {
    const place = this.#placeOf(start, tokenAt);
    if (this.#entries[place] !== EMPTY) return;
    this.#entries[place] = start + 1;
    this.#numEntries++;
    if (2 * this.#numEntries > this.#entries.length) this.#grow(tokenAt);
  }

  /** The first start of the n-gram that is at `start`; null if it is not known. */
  find(start: number, tokenAt: TokenAt): number | null {
    const entry = this.#entries[this.#placeOf(start, tokenAt)]!;
    return entry === EMPTY ? null : entry - 1;
  }

  #placeOf(start: number, tokenAt: TokenAt): number {
    const mask = this.#entries.length - 1;
    let place = this.#hash(start, tokenAt) & mask;
    while (this.#entries[place] !== EMPTY && !this.#isEqual(this.#entries[place]! - 1, start, tokenAt)) {
      place = (place + 1) & mask;
    }
    return place;
  }

  #hash(start: number, tokenAt: TokenAt): number {
    let hash = 0;
    for (let index = 0; index < this.size; index++) hash = Math.imul(hash ^ (tokenAt(start + index) + 1), HASH_BASE);
    // The low bits of a product depend on the low bits of its factors only.
    return hash ^ (hash >>> 15);
  }

  #isEqual(left: number, right: number, tokenAt: TokenAt): boolean {
    for (let index = 0; index < this.size; index++) {
      if (tokenAt(left + index) !== tokenAt(right + index)) return false;
    }
    return true;
  }

  #grow(tokenAt: TokenAt): void {
    const old = this.#entries;
    this.#entries = new Int32Array(2 * old.length);
    for (const entry of old) if (entry !== EMPTY) this.#entries[this.#placeOf(entry - 1, tokenAt)] = entry;
  }
}
