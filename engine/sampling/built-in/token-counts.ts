/** How often the output of one request has each token, with the tokens of its prompt at count 0 or more. */

/** Mutable. Follows the live output; every token is looked at once. */
export class TokenCounts {
  /** The distinct tokens, in the order they came. */
  readonly tokenIds: number[] = [];
  /** By index of `tokenIds`: occurrences in the output. */
  readonly outputCounts: number[] = [];
  readonly #indexOf = new Map<number, number>();
  readonly #outputTokenIds: readonly number[];
  #numCounted = 0;

  /** @param outputTokenIds The live list, which may hold tokens already. */
  constructor(promptTokenIds: readonly number[], outputTokenIds: readonly number[]) {
    this.#outputTokenIds = outputTokenIds;
    for (const tokenId of promptTokenIds) this.#indexFor(tokenId);
  }

  get numTokens(): number {
    return this.tokenIds.length;
  }

  /** Counts what came since the last call. */
  addNewTokens(): void {
    for (; this.#numCounted < this.#outputTokenIds.length; this.#numCounted++) {
      this.outputCounts[this.#indexFor(this.#outputTokenIds[this.#numCounted])] += 1;
    }
  }

  #indexFor(tokenId: number): number {
    const known = this.#indexOf.get(tokenId);
    if (known !== undefined) return known;
    this.#indexOf.set(tokenId, this.tokenIds.length);
    this.outputCounts.push(0);
    return this.tokenIds.push(tokenId) - 1;
  }
}
