/** Sets of tokens that can come next. */

/**
 * [ceil(vocabSize / 32)]; bit `id % 32` of word `id / 32` is 1 for an allowed token. Bits past the last token have no
 * meaning.
 */
export type TokenBitmask = Int32Array;

/** Whichever form is smaller. */
export type TokenSet =
  /** Ids in any order. */
  { readonly kind: "ids"; readonly ids: Int32Array } | { readonly kind: "bits"; readonly bits: TokenBitmask };

export function createTokenBitmask(vocabSize: number): TokenBitmask {
  return new Int32Array(Math.ceil(vocabSize / 32));
}

export function allowOnly(bitmask: TokenBitmask, tokenIds: readonly number[]): void {
  bitmask.fill(0);
  for (const tokenId of tokenIds) bitmask[tokenId >> 5]! |= 1 << (tokenId & 31);
}

export function addTokens(bitmask: TokenBitmask, tokens: TokenSet): void {
  if (tokens.kind === "bits") {
    const { bits } = tokens;
    for (let wordIndex = 0; wordIndex < bits.length; wordIndex++) bitmask[wordIndex]! |= bits[wordIndex]!;
  } else for (const tokenId of tokens.ids) bitmask[tokenId >> 5]! |= 1 << (tokenId & 31);
}

/** A copy of the bits, or their ids. */
export function packTokens(bitmask: TokenBitmask): TokenSet {
  let numTokens = 0;
  for (let wordIndex = 0; wordIndex < bitmask.length; wordIndex++) numTokens += countBits(bitmask[wordIndex]!);
  if (numTokens > bitmask.length) return { kind: "bits", bits: bitmask.slice() };
  const ids = new Int32Array(numTokens);
  let index = 0;
  for (let wordIndex = 0; wordIndex < bitmask.length; wordIndex++) {
    for (let word = bitmask[wordIndex]!; word !== 0; word &= word - 1)
      ids[index++] = wordIndex * 32 + 31 - Math.clz32(word & -word);
  }
  return { kind: "ids", ids };
}

/** Bytes of memory. */
export function sizeOf(tokens: TokenSet): number {
  return tokens.kind === "bits" ? tokens.bits.byteLength : tokens.ids.byteLength;
}

/** Whether no token can come next. */
export function allowsNothing(bitmask: TokenBitmask, vocabSize: number): boolean {
  const numWholeWords = vocabSize >> 5;
  for (let wordIndex = 0; wordIndex < numWholeWords; wordIndex++) if (bitmask[wordIndex] !== 0) return false;
  const numRest = vocabSize & 31;
  return numRest === 0 || (bitmask[numWholeWords]! & ((1 << numRest) - 1)) === 0;
}

/** Sets the logits of all other tokens to -Infinity. Most words allow all or none of their tokens. */
export function maskRow(row: Float32Array, bitmask: TokenBitmask): void {
  for (let wordIndex = 0; wordIndex < bitmask.length; wordIndex++) {
    const word = bitmask[wordIndex]!;
    if (word === -1) continue;
    const first = wordIndex * 32;
    if (word === 0) {
      // Neighbours are filled together: a call for each would take longer than the work.
      while (wordIndex + 1 < bitmask.length && bitmask[wordIndex + 1] === 0) wordIndex++;
      row.fill(-Infinity, first, (wordIndex + 1) * 32);
      continue;
    }
    for (let forbidden = ~word; forbidden !== 0; forbidden &= forbidden - 1) {
      const tokenId = first + 31 - Math.clz32(forbidden & -forbidden);
      if (tokenId < row.length) row[tokenId] = -Infinity;
    }
  }
}

function countBits(word: number): number {
  const pairs = word - ((word >>> 1) & 0x55_55_55_55);
  const fours = (pairs & 0x33_33_33_33) + ((pairs >>> 2) & 0x33_33_33_33);
  return Math.imul((fours + (fours >>> 4)) & 0x0f_0f_0f_0f, 0x01_01_01_01) >>> 24;
}
