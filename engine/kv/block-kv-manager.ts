/**
 * KV manager of the paged layout: each sequence holds a table of blocks that grows with it, and sequences with equal
 * prefixes hold the same blocks.
 */
import { invariant } from "../contract/errors.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { BlockHashes } from "./block-hashes.ts";
import { BlockPool } from "./block-pool.ts";
import type { BlockSnapshots } from "./block-snapshots.ts";
import type { KvCapacity, KvManager, KvPlacement } from "./kv-manager.ts";
import type { SlotTransfer } from "./slot-transfer.ts";
import { restoredRow, StatePairs } from "./state-rows.ts";
import { planSnapshots } from "./state-snapshots.ts";

export interface BlockKvOptions {
  readonly capacity: KvCapacity;
  readonly maxNumSequences: number;
  /** Default true; false reuses nothing. */
  readonly enablePrefixCaching?: boolean;
  /** Those of a decoder with recurrent layers; default null. */
  readonly snapshots?: BlockSnapshots | null;
}

/** State of a running sequence in addition to its block table. */
interface Holding {
  readonly hashes: BlockHashes;
  /** Leading blocks whose tokens are complete; they are shared or reusable and no longer written to. */
  numCompleteBlocks: number;
  /** Hashes of prompt blocks that this sequence is going to compute. */
  awaited: readonly string[];
  /** Rows of snapshots to come, by the number of tokens after which they are taken. Emptied as they are. */
  readonly snapshotRows: Map<number, number>;
}

/** Blocks that a prompt starts with, and how many of them it can reuse. */
interface Prefix {
  readonly blockIds: readonly number[];
  /** More than the blocks only if recurrent states are missing. */
  readonly numShared: number;
}

/** Mutable. Only it changes block tables. */
export class BlockKvManager implements KvManager {
  readonly capacity: KvCapacity;
  readonly #pool: BlockPool;
  readonly #statePairs: StatePairs;
  readonly #maxNumSequences: number;
  readonly #isEnabled: boolean;
  readonly #snapshots: BlockSnapshots | null;
  readonly #holdings = new Map<Sequence, Holding>();
  /** Blocks that running sequences are about to complete, with the number of these sequences. */
  readonly #awaited = new Map<string, number>();

  constructor({ capacity, maxNumSequences, enablePrefixCaching = true, snapshots = null }: BlockKvOptions) {
    this.capacity = capacity;
    this.#snapshots = snapshots;
    this.#pool = new BlockPool(capacity.numBlocks, (hash) => snapshots?.drop(hash));
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

  /** Rows of all tokens need the whole computation of the prompt. */
  looksUpPrefix({ wantsPromptRows }: Sequence): boolean {
    return this.#isEnabled && !wantsPromptRows;
  }

  /**
   * Finds the longest run of complete blocks that the sequence starts with, never all of its tokens. Returns null if
   * the rest of its prompt has no room, or if a running sequence is about to compute the block that comes next: waiting
   * for it costs less than computing it twice.
   *
   * With recurrent layers, the sequence goes on from the last of these blocks that has a snapshot, and waits only for
   * snapshots.
   */
  tryPlace(sequence: Sequence, stalled: ReadonlySet<Sequence> = new Set()): KvPlacement | null {
    const { blockSize } = this.capacity;
    const hashes = new BlockHashes(sequence.tokens, blockSize);
    const prefix = this.looksUpPrefix(sequence)
      ? this.#findPrefix(sequence, hashes, stalled)
      : { blockIds: [], numShared: 0 };
    if (prefix === null) return null;
    const cached = prefix.blockIds;
    const numRevived = cached.filter((blockId) => this.#pool.numReferences(blockId) === 0).length;
    const numFree = this.#pool.numFree - numRevived;
    const numTokens = sequence.numTokensToPrefill - cached.length * blockSize;
    if (numTokens > numFree * blockSize) return null;
    const numCachedTokens = cached.length * blockSize;
    const chunkEnds =
      this.#snapshots === null || !this.#isEnabled
        ? []
        : planSnapshots(numCachedTokens, prefix.numShared * blockSize, sequence.numTokensToPrefill, blockSize);
    return {
      numCachedTokens,
      chunkEnds,
      take: () => this.#take(sequence, hashes, cached, chunkEnds),
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
    for (const [endToken, row] of holding.snapshotRows) {
      if (endToken > sequence.numComputedTokens) break;
      this.#snapshots?.keep(holding.hashes.at(endToken / this.capacity.blockSize - 1), row);
      holding.snapshotRows.delete(endToken);
    }
    if (holding.awaited.length > 0 && !sequence.isPrefilling) this.#stopAwaiting(holding);
  }

  /** Only blocks of computed tokens are reusable, and later tokens overwrite what a draft left. */
  forgetDraft(): void {}

  /** The end of a sequence is evicted before its start, which more prompts share. */
  release(sequence: Sequence): void {
    const holding = this.#holdings.get(sequence);
    if (holding === undefined) return;
    this.#stopAwaiting(holding);
    for (const row of holding.snapshotRows.values()) this.#snapshots?.release(row);
    sequence.snapshotRows = new Map();
    this.#holdings.delete(sequence);
    for (const blockId of sequence.blockTable.splice(0).reverse()) this.#pool.release(blockId);
    if (sequence.statePair !== null) this.#statePairs.release(sequence.statePair);
    sequence.statePair = null;
  }

  /** Null if the sequence should wait for a running one that is not in `stalled`. */
  #findPrefix(sequence: Sequence, hashes: BlockHashes, stalled: ReadonlySet<Sequence>): Prefix | null {
    const { blockSize } = this.capacity;
    const maxBlocks = Math.floor((sequence.numTokensToPrefill - 1) / blockSize);
    const shared: number[] = [];
    while (shared.length < maxBlocks) {
      const hash = hashes.at(shared.length);
      const blockId = this.#pool.find(hash);
      if (blockId === null) {
        if (this.#snapshots === null && this.#isAwaited(hash, stalled)) return null;
        break;
      }
      shared.push(blockId);
    }
    const snapshots = this.#snapshots;
    if (snapshots === null) return { blockIds: shared, numShared: shared.length };
    const numReusable = 1 + shared.findLastIndex((_, index) => snapshots.has(hashes.at(index)));
    for (let index = numReusable; index < maxBlocks; index++) {
      if (this.#isAwaited(hashes.at(index), stalled)) return null;
    }
    return { blockIds: shared.slice(0, numReusable), numShared: shared.length };
  }

  /** Whether a running sequence that is not in `stalled` is about to complete the block. */
  #isAwaited(hash: string, stalled: ReadonlySet<Sequence>): boolean {
    let numAwaiting = this.#awaited.get(hash) ?? 0;
    for (const sequence of stalled) {
      if (numAwaiting === 0) return false;
      if (this.#holdings.get(sequence)?.awaited.includes(hash)) numAwaiting--;
    }
    return numAwaiting > 0;
  }

  /** Returns the transfers to perform before its first chunk. */
  #take(
    sequence: Sequence,
    hashes: BlockHashes,
    cached: readonly number[],
    chunkEnds: readonly number[],
  ): readonly SlotTransfer[] {
    invariant(!this.#holdings.has(sequence), `request ${sequence.requestId} is placed twice`);
    for (const blockId of cached) this.#pool.hold(blockId);
    sequence.blockTable.push(...cached);
    const pair = this.#statePairs.take();
    sequence.statePair = pair;
    const snapshots = this.#snapshots;
    // Before the row can be taken for another state.
    const fromRow = snapshots === null || cached.length === 0 ? null : snapshots.rowOf(hashes.at(cached.length - 1));
    const snapshotRows = new Map<number, number>();
    for (const endToken of chunkEnds) {
      const row = snapshots?.take() ?? null;
      if (row !== null) snapshotRows.set(endToken, row);
    }
    sequence.snapshotRows = new Map(snapshotRows);
    const awaited = this.#hashesToCome(sequence, hashes, cached, snapshotRows);
    for (const hash of awaited) this.#awaited.set(hash, (this.#awaited.get(hash) ?? 0) + 1);
    this.#holdings.set(sequence, { hashes, numCompleteBlocks: cached.length, awaited, snapshotRows });
    return fromRow === null ? [] : [{ kind: "state", fromRow, toRow: restoredRow(pair) }];
  }

  /** Of blocks, or of those with a snapshot if the layers are recurrent: others cannot be reused. */
  #hashesToCome(
    sequence: Sequence,
    hashes: BlockHashes,
    cached: readonly number[],
    snapshotRows: ReadonlyMap<number, number>,
  ): readonly string[] {
    if (!this.#isEnabled) return [];
    const { blockSize } = this.capacity;
    if (this.#snapshots !== null) return [...snapshotRows.keys()].map((end) => hashes.at(end / blockSize - 1));
    const numFull = Math.floor(sequence.numTokensToPrefill / blockSize);
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
