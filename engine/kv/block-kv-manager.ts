/**
 * KV manager of the paged layout: each sequence holds a table of blocks that grows with it, and sequences with equal
 * prefixes hold the same blocks.
 */
import { invariant } from "../contract/errors.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { BlockHashes } from "./block-hashes.ts";
import { BlockPool } from "./block-pool.ts";
import type { KvCapacity, KvManager, KvPlacement } from "./kv-manager.ts";
import type { SlotTransfer } from "./slot-transfer.ts";
import { StatePairs } from "./state-rows.ts";

export interface BlockKvOptions {
  readonly capacity: KvCapacity;
  readonly maxNumSequences: number;
  /** Default true; false reuses nothing. */
  readonly enablePrefixCaching?: boolean;
}

/** State of a running sequence in addition to its block table. */
interface Holding {
  readonly hashes: BlockHashes;
  /** Leading blocks whose tokens are complete; they are shared or reusable and no longer written to. */
  numCompleteBlocks: number;
  /** Hashes of prompt blocks that this sequence is going to compute. */
  awaited: readonly string[];
}

/** Mutable. Only it changes block tables. */
export class BlockKvManager implements KvManager {
  readonly capacity: KvCapacity;
  readonly #pool: BlockPool;
  readonly #statePairs: StatePairs;
  readonly #maxNumSequences: number;
  readonly #isEnabled: boolean;
  readonly #holdings = new Map<Sequence, Holding>();
  /** Blocks that running sequences are about to complete, with the number of these sequences. */
  readonly #awaited = new Map<string, number>();

  constructor({ capacity, maxNumSequences, enablePrefixCaching = true }: BlockKvOptions) {
    this.capacity = capacity;
    this.#pool = new BlockPool(capacity.numBlocks);
    this.#statePairs = new StatePairs(maxNumSequences);
    this.#maxNumSequences = maxNumSequences;
    this.#isEnabled = enablePrefixCaching;
  }

  get numFreeSequences(): number {
    return this.#maxNumSequences - this.#holdings.size;
  }

  get usage(): number {
    return this.#pool.usage;
  }

  /** Prompt logprobs need the whole computation of the prompt. */
  looksUpPrefix({ samplingParams }: Sequence): boolean {
    return this.#isEnabled && samplingParams.promptLogprobs === null;
  }

  /**
   * Finds the longest run of complete blocks that the sequence starts with, never all of its tokens. Returns null if
   * the rest of its prompt has no room, or if a running sequence is about to compute the block that comes next: waiting
   * for it costs less than computing it twice.
   */
  tryPlace(sequence: Sequence): KvPlacement | null {
    const { blockSize } = this.capacity;
    const hashes = new BlockHashes(sequence.tokens, blockSize);
    const cached = this.looksUpPrefix(sequence) ? this.#findPrefix(sequence, hashes) : [];
    if (cached === null) return null;
    const numRevived = cached.filter((blockId) => this.#pool.numReferences(blockId) === 0).length;
    const numFree = this.#pool.numFree - numRevived;
    const numTokens = sequence.numTokensToPrefill - cached.length * blockSize;
    if (numTokens > numFree * blockSize) return null;
    return {
      numCachedTokens: cached.length * blockSize,
      take: () => {
        this.#take(sequence, hashes, cached);
        return [];
      },
    };
  }

  numTokensWithRoom(sequence: Sequence): number {
    const { blockSize } = this.capacity;
    const numHeld = sequence.blockTable.length * blockSize - sequence.numComputedTokens;
    return numHeld + this.#pool.numFree * blockSize;
  }

  reserve({ blockTable }: Sequence, endToken: number): readonly SlotTransfer[] {
    while (blockTable.length * this.capacity.blockSize < endToken) blockTable.push(this.#pool.allocate());
    return [];
  }

  keepComputed(sequence: Sequence): void {
    const holding = this.#holdings.get(sequence);
    invariant(holding !== undefined, `request ${sequence.requestId} computes tokens without KV`);
    if (!this.#isEnabled) return;
    const numFull = Math.floor(sequence.numComputedTokens / this.capacity.blockSize);
    for (; holding.numCompleteBlocks < numFull; holding.numCompleteBlocks++) {
      const blockId = sequence.blockTable[holding.numCompleteBlocks]!;
      this.#pool.setHash(blockId, holding.hashes.at(holding.numCompleteBlocks));
    }
    if (holding.awaited.length > 0 && !sequence.isPrefilling) this.#stopAwaiting(holding);
  }

  /** The end of a sequence is evicted before its start, which more prompts share. */
  release(sequence: Sequence): void {
    const holding = this.#holdings.get(sequence);
    if (holding === undefined) return;
    this.#stopAwaiting(holding);
    this.#holdings.delete(sequence);
    for (const blockId of sequence.blockTable.splice(0).reverse()) this.#pool.release(blockId);
    if (sequence.statePair !== null) this.#statePairs.release(sequence.statePair);
    sequence.statePair = null;
  }

  /** The blocks of the prefix; null if the sequence should wait for a running one. */
  #findPrefix(sequence: Sequence, hashes: BlockHashes): number[] | null {
    const { blockSize } = this.capacity;
    const maxBlocks = Math.floor((sequence.numTokensToPrefill - 1) / blockSize);
    const cached: number[] = [];
    while (cached.length < maxBlocks) {
      const hash = hashes.at(cached.length);
      const blockId = this.#pool.find(hash);
      if (blockId === null) return this.#awaited.has(hash) ? null : cached;
      cached.push(blockId);
    }
    return cached;
  }

  #take(sequence: Sequence, hashes: BlockHashes, cached: readonly number[]): void {
    invariant(!this.#holdings.has(sequence), `request ${sequence.requestId} is placed twice`);
    for (const blockId of cached) this.#pool.hold(blockId);
    sequence.blockTable.push(...cached);
    sequence.statePair = this.#statePairs.take();
    const holding = { hashes, numCompleteBlocks: cached.length, awaited: this.#hashesToCome(sequence, hashes, cached) };
    for (const hash of holding.awaited) this.#awaited.set(hash, (this.#awaited.get(hash) ?? 0) + 1);
    this.#holdings.set(sequence, holding);
  }

  #hashesToCome(sequence: Sequence, hashes: BlockHashes, cached: readonly number[]): readonly string[] {
    if (!this.#isEnabled) return [];
    const numFull = Math.floor(sequence.numTokensToPrefill / this.capacity.blockSize);
    return Array.from({ length: numFull - cached.length }, (_, index) => hashes.at(cached.length + index));
  }

  #stopAwaiting(holding: Holding): void {
    for (const hash of holding.awaited) {
      const numAwaiting = this.#awaited.get(hash) ?? 0;
      if (numAwaiting <= 1) this.#awaited.delete(hash);
      else this.#awaited.set(hash, numAwaiting - 1);
    }
    holding.awaited = [];
  }
}
