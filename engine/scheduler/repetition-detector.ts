/** Finds loops at the end of an output. */
import type { RepetitionDetection } from "../contract/repetition-detection.ts";

/**
 * Mutable: one per sequence. For each pattern size p it counts how many of the newest tokens equal the token p before
 * them. The tail is a pattern of p tokens c times in a row exactly if that count is at least p * (c - 1). A token
 * therefore costs one comparison per pattern size, however long the output is and however often a pattern must repeat.
 * The result is that of vLLM's `check_sequence_repetition`, which compares the whole tail for each token.
 */
export class RepetitionDetector {
  readonly #minPatternSize: number;
  readonly #minCount: number;
  /** By pattern size, from the smallest on: newest tokens in a row that equal the token one pattern before. */
  readonly #numRepeated: Int32Array;

  constructor({ maxPatternSize, minPatternSize, minCount }: RepetitionDetection) {
    this.#minPatternSize = Math.max(minPatternSize, 1);
    this.#minCount = minCount;
    this.#numRepeated = new Int32Array(maxPatternSize - this.#minPatternSize + 1);
  }

  /**
   * Call it once for each token, after it was appended.
   *
   * @returns whether the output ends with a loop.
   */
  readNewest(outputTokenIds: readonly number[]): boolean {
    const newest = outputTokenIds.length - 1;
    const tokenId = outputTokenIds[newest];
    const numSizes = Math.min(this.#numRepeated.length, newest - this.#minPatternSize + 1);
    let isLoop = false;
    for (let index = 0; index < numSizes; index++) {
      const patternSize = this.#minPatternSize + index;
      const isRepeated = outputTokenIds[newest - patternSize] === tokenId;
      const numRepeated = isRepeated ? this.#numRepeated[index]! + 1 : 0;
      this.#numRepeated[index] = numRepeated;
      if (numRepeated >= patternSize * (this.#minCount - 1)) isLoop = true;
    }
    return isLoop;
  }
}
