/** Which tokens may come next, as one bit each. */

/**
 * [ceil(vocabSize / 32)]; bit `id % 32` of word `id / 32` is 1 for an allowed token. Bits past the last token say
 * nothing.
 */
export type TokenBitmask = Int32Array;

export function createTokenBitmask(vocabSize: number): TokenBitmask {
  return new Int32Array(Math.ceil(vocabSize / 32));
}

export function allowOnly(bitmask: TokenBitmask, tokenIds: readonly number[]): void {
  bitmask.fill(0);
  for (const tokenId of tokenIds) bitmask[tokenId >> 5] |= 1 << (tokenId & 31);
}

/** Whether no token at all may come next. */
export function allowsNothing(bitmask: TokenBitmask, vocabSize: number): boolean {
  const numWholeWords = vocabSize >> 5;
  for (let wordIndex = 0; wordIndex < numWholeWords; wordIndex++) if (bitmask[wordIndex] !== 0) return false;
  const numRest = vocabSize & 31;
  return numRest === 0 || (bitmask[numWholeWords] & ((1 << numRest) - 1)) === 0;
}

/** Sets the logits of all other tokens to -Infinity. Most words allow all of their tokens or none. */
export function maskRow(row: Float32Array, bitmask: TokenBitmask): void {
  for (let wordIndex = 0; wordIndex < bitmask.length; wordIndex++) {
    const word = bitmask[wordIndex];
    if (word === -1) continue;
    const first = wordIndex * 32;
    const end = Math.min(first + 32, row.length);
    if (word === 0) row.fill(-Infinity, first, end);
    else
      for (let tokenId = first; tokenId < end; tokenId++)
        if (((word >> (tokenId & 31)) & 1) === 0) row[tokenId] = -Infinity;
  }
}
