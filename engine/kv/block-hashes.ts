/**
 * Names of full blocks by everything that their keys and values depend on.
 *
 * A block's hash covers the hash of the block before it, so that equal hashes mean equal tokens from the start of the
 * prompt on, at the same positions, with the same images at the same places, the same salt and the same adapter. The
 * chain is that of vLLM's automatic prefix caching; the hash is SHA-256, so that tenants cannot make blocks collide.
 */
import { createHash } from "node:crypto";

import { positionOf } from "../scheduler/sequence.ts";
import type { SequenceTokens } from "../scheduler/sequence.ts";

/** Mutable: computes each hash once, on first access. The tokens may grow at the end. */
export class BlockHashes {
  readonly #tokens: SequenceTokens;
  readonly #blockSize: number;
  readonly #hashes: string[] = [];

  constructor(tokens: SequenceTokens, blockSize: number) {
    this.#tokens = tokens;
    this.#blockSize = blockSize;
  }

  /** The hash of the block with this index. All its tokens must be known. */
  at(blockIndex: number): string {
    for (let index = this.#hashes.length; index <= blockIndex; index++) this.#hashes.push(this.#hashBlock(index));
    return this.#hashes[blockIndex]!;
  }

  #hashBlock(blockIndex: number): string {
    const { promptTokenIds, outputTokenIds, images, cacheSalt, adapterId } = this.#tokens;
    const firstToken = blockIndex * this.#blockSize;
    const tokenIds = new Int32Array(this.#blockSize);
    for (let index = 0; index < tokenIds.length; index++) {
      const place = firstToken + index;
      const numPromptTokens = promptTokenIds.length;
      tokenIds[index] = place < numPromptTokens ? promptTokenIds[place]! : outputTokenIds[place - numPromptTokens]!;
    }
    const hash = createHash("sha256").update(tokenIds);
    const positions = this.#positionsOf(firstToken);
    if (positions !== null) hash.update(positions);
    const endToken = firstToken + this.#blockSize;
    const within = images.filter(({ offset, length }) => offset < endToken && offset + length > firstToken);
    // JSON separates the parts, so no content of one part can be taken for another. Tokens and positions are of fixed size.
    const parent = blockIndex === 0 ? [cacheSalt, adapterId] : this.#hashes[blockIndex - 1];
    const placed = within.map(({ mmHash, offset, length }) => [mmHash, offset - firstToken, length]);
    hash.update(JSON.stringify([parent, placed, positions !== null]));
    return hash.digest("base64url");
  }

  /** Row-major [blockSize, 3]; null if the position of every token of the block is its index. */
  #positionsOf(firstToken: number): Int32Array | null {
    if (this.#tokens.positions === null) return null;
    const positions = new Int32Array(3 * this.#blockSize);
    let isMoved = false;
    for (let index = 0; index < positions.length; index++) {
      const place = firstToken + Math.floor(index / 3);
      positions[index] = positionOf(this.#tokens, place, index % 3);
      isMoved ||= positions[index] !== place;
    }
    return isMoved ? positions : null;
  }
}
