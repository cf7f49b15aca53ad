/** A second account of a pool of blocks: what each holder has, which block keeps each hash, and the order of eviction. */
import { deepEqual, equal, ok } from "node:assert/strict";

import { BlockPool } from "../../../engine/kv/block-pool.ts";

/** Mutable: performs each operation on the pool as well, and expects the outcome that the account has. */
export class PoolAccount {
  readonly evicted: string[] = [];
  /** Hashes that a held block took over from one without a holder. */
  numTakenOver = 0;
  readonly #pool: BlockPool;
  readonly #held: number[] = [];
  readonly #blockIds = new Map<string, number>();
  /** Blocks with a hash and without a holder, least recently released first. */
  #reusable: number[] = [];

  constructor(numBlocks: number) {
    this.#pool = new BlockPool(numBlocks, (hash) => this.evicted.push(hash));
  }

  /** One of the held blocks, one time for each holder; undefined if there is none. */
  heldBlock(pick: number): number | undefined {
    return this.#held[pick % Math.max(this.#held.length, 1)];
  }

  allocate(): void {
    if (this.#pool.numFree === 0) return;
    const hasUnhashed = this.#pool.numFree > this.#reusable.length;
    const oldest = this.#reusable[0];
    const numEvicted = this.evicted.length;
    const allocated = this.#pool.allocate();
    ok(!this.#held.includes(allocated));
    equal(this.#reusable.includes(allocated), !hasUnhashed);
    const [hash] = [...this.#blockIds].find(([, blockId]) => blockId === allocated) ?? [];
    deepEqual(this.evicted.slice(numEvicted), hasUnhashed ? [] : [hash]);
    if (!hasUnhashed) {
      equal(allocated, oldest);
      this.#reusable.shift();
      this.#blockIds.delete(hash!);
    }
    this.#held.push(allocated);
  }

  release(blockId: number): void {
    this.#pool.release(blockId);
    this.#held.splice(this.#held.indexOf(blockId), 1);
    if (!this.#held.includes(blockId) && this.#hasHash(blockId)) this.#reusable.push(blockId);
  }

  setHash(blockId: number, hash: string): void {
    if (this.#hasHash(blockId)) return;
    this.#pool.setHash(blockId, hash);
    const other = this.#blockIds.get(hash);
    // The other one keeps the tokens while it is held.
    if (other !== undefined && this.#held.includes(other)) return;
    if (other !== undefined) this.numTakenOver++;
    this.#reusable = this.#reusable.filter((each) => each !== other);
    this.#blockIds.set(hash, blockId);
  }

  share(hash: string): void {
    const found = this.#pool.find(hash);
    if (found === null) return;
    this.#pool.hold(found);
    this.#held.push(found);
    this.#reusable = this.#reusable.filter((each) => each !== found);
  }

  check(numBlocks: number, hashes: readonly string[]): void {
    const distinct = new Set(this.#held);
    equal(this.#pool.numFree, numBlocks - 1 - distinct.size);
    for (const hash of hashes) equal(this.#pool.find(hash), this.#blockIds.get(hash) ?? null);
    for (const blockId of distinct) {
      equal(this.#pool.numReferences(blockId), this.#held.filter((each) => each === blockId).length);
    }
  }

  releaseAll(): void {
    while (this.#held.length > 0) this.release(this.#held[0]!);
  }

  #hasHash(blockId: number): boolean {
    return [...this.#blockIds.values()].includes(blockId);
  }
}
