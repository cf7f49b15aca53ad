/** Counts each token in a request's output; tokens of the prompt have an entry with count 0 or more. */

/** Mutable. Follows the live output and visits every token once. */
export class TokenCounts {
  /** The distinct tokens in order of occurrence. */
  readonly tokenIds: number[] = [];
  /** By index of `tokenIds`: occurrences in the output. */
  readonly outputCounts: number[] = [];
  readonly #indexOf = new Map<number, number>();
  readonly #outputTokenIds: readonly number[];
  #numCounted = 0;

  /** @param outputTokenIds The live list, which may already contain tokens. */
  constructor(promptTokenIds: readonly number[], outputTokenIds: readonly number[]) {
    this.#outputTokenIds = outputTokenIds;
    for (const tokenId of promptTokenIds) this.#indexFor(tokenId);
  }

  get numTokens(): number {
    return this.tokenIds.length;
  }

  /** Counts the tokens added since the last call. */
  addNewTokens(): void {
    for (; this.#numCounted < this.#outputTokenIds.length; this.#numCounted++) {
      this.outputCounts[this.#indexFor(this.#outputTokenIds[this.#numCounted]!)]! += 1;
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
