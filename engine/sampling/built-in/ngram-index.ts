/** Which tokens would complete an n-gram that the output already has. */
import type { NoRepeatNgram } from "../../contract/no-repeat-ngram.ts";
import type { Logits } from "../contract/logits-processor.ts";

/** Odd, so that no bit is lost when hashes are multiplied modulo 2^32. */
const HASH_BASE = 0x9e3779b1;
const NONE = -1;

/**
 * Mutable. Follows the live output. A new token costs one update of a rolling hash (Rabin and Karp) of the last n - 1
 * tokens, one entry for the n-gram that it completes, and the removal of the n-gram that leaves the window. Entries of
 * equal hash form a list from the newest to the oldest. A lookup compares the tokens of each, so a collision excludes
 * nothing. No step depends on the length of the output.
 */
export class NgramIndex {
  readonly #rule: NoRepeatNgram;
  readonly #outputTokenIds: readonly number[];
  /** Hash of the n - 1 tokens before the last one of an n-gram -> start of the newest n-gram with that hash. */
  readonly #newestStart = new Map<number, number>();
  /** By start of an n-gram: hash of its first n - 1 tokens. */
  readonly #hashes: number[] = [];
  /** By start of an n-gram: start of the next older one with the same hash, or `NONE`. */
  readonly #olderStart: number[] = [];
  /** `HASH_BASE` to the power of n - 1. */
  readonly #leavingFactor: number;
  #numRead = 0;
  /** Hash of the last n - 1 tokens, or of all while there are fewer. */
  #hash = 0;
  /** N-grams before this one have left the window. */
  #firstStart = 0;

  /** @param outputTokenIds The live list, which may already contain tokens. */
  constructor(rule: NoRepeatNgram, outputTokenIds: readonly number[]) {
    this.#rule = rule;
    this.#outputTokenIds = outputTokenIds;
    let factor = 1;
    for (let power = 1; power < rule.size; power++) factor = Math.imul(factor, HASH_BASE);
    this.#leavingFactor = factor;
  }

  /** Excludes the tokens that would repeat an n-gram of the window. A row without such tokens is not accessed. */
  excludeRepeats(logits: Logits, rowIndex: number): void {
    this.#readNewTokens();
    const { size } = this.#rule;
    if (this.#numRead < size) return;
    let start = this.#newestStart.get(this.#hash) ?? NONE;
    while (start >= this.#firstStart) {
      if (this.#isRepeated(start)) logits.row(rowIndex)[this.#outputTokenIds[start + size - 1]!] = -Infinity;
      start = this.#olderStart[start]!;
    }
  }

  /** Whether the last n - 1 tokens are also the first ones of the n-gram at `start`. */
  #isRepeated(start: number): boolean {
    const tokenIds = this.#outputTokenIds;
    const length = this.#rule.size - 1;
    const lastStart = this.#numRead - length;
    for (let index = 0; index < length; index++) {
      if (tokenIds[start + index] !== tokenIds[lastStart + index]) return false;
    }
    return true;
  }

  #readNewTokens(): void {
    for (; this.#numRead < this.#outputTokenIds.length; this.#numRead++) this.#read(this.#numRead);
    this.#leaveWindow();
  }

  #read(index: number): void {
    const { size, allowedTokenIds } = this.#rule;
    const tokenId = this.#outputTokenIds[index]!;
    const start = index - size + 1;
    if (start >= 0) {
      const isAllowed = allowedTokenIds.has(tokenId);
      this.#hashes[start] = this.#hash;
      this.#olderStart[start] = this.#newestStart.get(this.#hash) ?? NONE;
      if (!isAllowed) this.#newestStart.set(this.#hash, start);
    }
    if (size === 1) return;
    const leaving = start >= 0 ? Math.imul(this.#outputTokenIds[start]! + 1, this.#leavingFactor) : 0;
    this.#hash = (Math.imul(this.#hash, HASH_BASE) + tokenId + 1 - leaving) | 0;
  }

  #leaveWindow(): void {
    const firstStart = this.#numRead - this.#rule.windowSize;
    for (; this.#firstStart < firstStart; this.#firstStart++) {
      const hash = this.#hashes[this.#firstStart];
      if (hash !== undefined && this.#newestStart.get(hash) === this.#firstStart) this.#newestStart.delete(hash);
    }
  }
}
