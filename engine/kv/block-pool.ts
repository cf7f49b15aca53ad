/**
 * The blocks of a paged KV cache: which are free, how many sequences hold each, and which keep tokens for reuse.
 *
 * The scheme is that of vLLM's block pool: a block without holders is free; if it has a hash, its tokens stay
 * reusable until the block is needed, and the least recently released one is taken first.
 */
import { invariant } from "../contract/errors.ts";

/** Rows of padding write here. It is never given to a sequence. */
export const SCRATCH_BLOCK_ID = 0;

/** Mutable. Every block is held, free without a hash, or free with one. */
export class BlockPool {
  readonly numBlocks: number;
  /** By block: the number of sequences that hold it. */
  readonly #numReferences: Int32Array;
  /** By block. A block is found by its hash while this is set. */
  readonly #hashes: (string | null)[];
  readonly #blockIdsByHash = new Map<string, number>();
  /** Free blocks without a hash; the last is taken first. */
  readonly #unhashed: number[];
  /** Free blocks with a hash, least recently released first. */
  readonly #reusable = new Set<number>();

  readonly #onEvict: (hash: string) => void;

  /**
   * @param numBlocks Includes the scratch block.
   * @param onEvict Receives the hash of tokens that no block keeps any more.
   */
  constructor(numBlocks: number, onEvict: (hash: string) => void = () => {}) {
    invariant(numBlocks >= 2, `a block pool of ${numBlocks} blocks has no block for sequences`);
    this.numBlocks = numBlocks;
    this.#onEvict = onEvict;
    this.#numReferences = new Int32Array(numBlocks);
    this.#hashes = Array.from({ length: numBlocks }, () => null);
    this.#unhashed = Array.from({ length: numBlocks - 1 }, (_, index) => numBlocks - 1 - index);
  }

  /** Blocks that no sequence holds, without the scratch block. */
  get numFree(): number {
    return this.#unhashed.length + this.#reusable.size;
  }

  /** Fraction of the blocks that sequences hold, 0 to 1. */
  get usage(): number {
    return 1 - this.numFree / (this.numBlocks - 1);
  }

  numReferences(blockId: number): number {
    return this.#numReferences[blockId]!;
  }

  /** Takes a free block for one holder. Its old tokens are no longer found. Call it while `numFree` is above 0. */
  allocate(): number {
    const blockId = this.#unhashed.pop() ?? this.#evict();
    this.#numReferences[blockId] = 1;
    return blockId;
  }

  /** The block that keeps the tokens of this hash; null if there is none. */
  find(hash: string): number | null {
    return this.#blockIdsByHash.get(hash) ?? null;
  }

  /** Adds a holder to a block that `find` returned. */
  hold(blockId: number): void {
    invariant(this.#hashes[blockId] !== null, `block ${blockId} is shared before its tokens are complete`);
    this.#numReferences[blockId]!++;
    this.#reusable.delete(blockId);
  }

  /** Removes a holder. A block without holders is free. */
  release(blockId: number): void {
    invariant(this.#numReferences[blockId]! > 0, `block ${blockId} is released but not held`);
    this.#numReferences[blockId]!--;
    if (this.#numReferences[blockId]! > 0) return;
    if (this.#hashes[blockId] === null) this.#unhashed.push(blockId);
    else this.#reusable.add(blockId);
  }

  /**
   * Makes the tokens of a held block reusable. The block must not be written to any more. If another block keeps the
   * same tokens, `find` continues to return that one while it is held. Without a holder, it gives up its tokens: the
   * held block is going to be evicted later.
   */
  setHash(blockId: number, hash: string): void {
    invariant(this.#numReferences[blockId]! > 0, `block ${blockId} gets a hash but is not held`);
    invariant(this.#hashes[blockId] === null, `block ${blockId} gets a second hash`);
    const other = this.#blockIdsByHash.get(hash);
    if (other !== undefined) {
      if (!this.#reusable.delete(other)) return;
      this.#hashes[other] = null;
      this.#unhashed.push(other);
    }
    this.#hashes[blockId] = hash;
    this.#blockIdsByHash.set(hash, blockId);
  }

  #evict(): number {
    for (const blockId of this.#reusable) {
      this.#reusable.delete(blockId);
      const hash = this.#hashes[blockId] ?? null;
      this.#hashes[blockId] = null;
      if (hash !== null) {
        this.#blockIdsByHash.delete(hash);
        this.#onEvict(hash);
      }
      return blockId;
    }
    invariant(false, "a block is taken from a pool without free blocks");
  }
}
