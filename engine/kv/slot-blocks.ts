/**
 * Shares the memory of KV slots by the tokens that are there. A slot reserves addresses for the longest sequence, but
 * takes pages of the machine only where tokens were written, so that there may be more slots than fit at full length.
 *
 * A block of a slot is one page of the keys and one of the values of every head of every layer, since a head's tokens
 * are neighbours in memory. Slots take blocks from their start on, and a budget limits their sum.
 */
import { invariant } from "../contract/errors.ts";
import type { KvCapacity } from "./kv-manager.ts";
import type { KvSlots } from "./kv-slots.ts";
import { numBlocksOf, numTokensIn } from "./plan-slot-blocks.ts";
import type { SlotBlockPlan } from "./plan-slot-blocks.ts";
import type { SlotTransfer } from "./slot-transfer.ts";
import type { StateSnapshots } from "./state-snapshots.ts";

/**
 * A run over neighbouring slots writes one token behind the tokens of every slot, also of those that do not decode. Each
 * slot therefore has room for one token more than it keeps, and at least one block.
 */
const NUM_IDLE_TOKENS = 1;
const MIN_BLOCKS = 1;

/** Mutable. Blocks are counted when they are planned, before a run writes to them. */
export class SlotBlocks {
  readonly capacity: KvCapacity;
  readonly #plan: SlotBlockPlan;
  readonly #kvSlots: KvSlots;
  readonly #snapshots: StateSnapshots | null;
  /** By slot: leading blocks that may have pages. */
  readonly #numHeld: Int32Array;
  #numHeldInAll: number;
  /** By slot: leading blocks that a running sequence needs; the fewest for a free slot, whose tokens can be evicted. */
  readonly #numNeeded: Int32Array;
  #numNeededInAll: number;
  #numRunning = 0;

  constructor(kvSlots: KvSlots, plan: SlotBlockPlan, snapshots: StateSnapshots | null) {
    const { numSlots } = kvSlots;
    this.capacity = plan.capacity;
    this.#plan = plan;
    this.#kvSlots = kvSlots;
    this.#snapshots = snapshots;
    this.#numHeld = new Int32Array(numSlots).fill(MIN_BLOCKS);
    this.#numNeeded = new Int32Array(numSlots).fill(MIN_BLOCKS);
    this.#numHeldInAll = numSlots * MIN_BLOCKS;
    this.#numNeededInAll = numSlots * MIN_BLOCKS;
  }

  /** Blocks that may have pages: at most `capacity.numBlocks`. */
  get numHeld(): number {
    return this.#numHeldInAll;
  }

  /** Share of the blocks that running sequences need, 0 to 1. */
  get usage(): number {
    const numFree = this.#kvSlots.numSlots - this.#numRunning;
    return (this.#numNeededInAll - numFree * MIN_BLOCKS) / this.capacity.numBlocks;
  }

  /**
   * Whether a waiting sequence of `numTokens` tokens fits, if all tokens of free slots are evicted. Every running
   * sequence keeps a block to grow into. Otherwise the next steps would often preempt the sequence that was just admitted.
   */
  fits(numTokens: number): boolean {
    const numWanted = this.#blocksFor(numTokens) - MIN_BLOCKS + this.#numRunning;
    return this.#numNeededInAll + numWanted <= this.capacity.numBlocks;
  }

  /** Whether these slots may have room for these numbers of tokens, and what they hold already, all at once. */
  fitTogether(rooms: ReadonlyMap<number, number>): boolean {
    let numWanted = this.#numNeededInAll;
    for (const [slot, numTokens] of rooms) {
      numWanted += Math.max(this.#blocksFor(numTokens), this.#numHeld[slot]!) - this.#numNeeded[slot]!;
    }
    return numWanted <= this.capacity.numBlocks;
  }

  /** Gives slots room for tokens. Returns the evictions, of other slots, to perform before. */
  makeRoom(rooms: ReadonlyMap<number, number>): SlotTransfer[] {
    const evictions: SlotTransfer[] = [];
    for (const [slot, numTokens] of rooms) evictions.push(...this.#hold(slot, this.#blocksFor(numTokens), rooms));
    return evictions;
  }

  /** The slot was taken for a running sequence. It keeps `numTokens` tokens, or they are going to be copied to it. */
  take(slot: number, numTokens: number): void {
    this.#numRunning++;
    this.#need(slot, this.#blocksFor(numTokens));
  }

  /** The slot is free. Its tokens stay until their blocks are needed. */
  free(slot: number): void {
    this.#numRunning--;
    this.#need(slot, MIN_BLOCKS);
  }

  /** The largest number of tokens for which the slot of a running sequence can be given room. */
  maxTokens(slot: number): number {
    const numBlocks = this.capacity.numBlocks - this.#numNeededInAll + this.#numNeeded[slot]!;
    return numTokensIn(this.#plan, numBlocks) - NUM_IDLE_TOKENS;
  }

  /** Gives the slot of a running sequence room for `numTokens` tokens. Returns the evictions to perform before. */
  reserve(slot: number, numTokens: number): SlotTransfer[] {
    const numBlocks = this.#blocksFor(numTokens);
    if (numBlocks <= this.#numNeeded[slot]!) return [];
    this.#need(slot, numBlocks);
    return this.#hold(slot, numBlocks, new Map());
  }

  #blocksFor(numTokens: number): number {
    return numBlocksOf(this.#plan, numTokens + NUM_IDLE_TOKENS);
  }

  #need(slot: number, numBlocks: number): void {
    this.#numNeededInAll += numBlocks - this.#numNeeded[slot]!;
    this.#numNeeded[slot] = numBlocks;
  }

  #setHeld(slot: number, numBlocks: number): void {
    this.#numHeldInAll += numBlocks - this.#numHeld[slot]!;
    this.#numHeld[slot] = numBlocks;
  }

  /** @param pinned Slots that nothing is evicted from. */
  #hold(slot: number, numBlocks: number, pinned: ReadonlyMap<number, number>): SlotTransfer[] {
    const numMore = numBlocks - this.#numHeld[slot]!;
    if (numMore <= 0) return [];
    const evictions = this.#evict(this.#numHeldInAll + numMore - this.capacity.numBlocks, pinned);
    this.#setHeld(slot, numBlocks);
    return evictions;
  }

  /** Blocks behind the tokens of a slot go first, then the last tokens of the slots that were freed first. */
  #evict(numBlocks: number, pinned: ReadonlyMap<number, number>): SlotTransfer[] {
    const evictions: SlotTransfer[] = [];
    let numMissing = numBlocks;
    const shrink = (slot: number, numLeft: number): void => {
      const numGone = Math.min(numMissing, this.#numHeld[slot]! - numLeft);
      if (numGone <= 0) return;
      numMissing -= numGone;
      this.#setHeld(slot, this.#numHeld[slot]! - numGone);
      evictions.push({ kind: "release", slot, firstBlock: this.#numHeld[slot]! });
    };
    for (let slot = 0; slot < this.#kvSlots.numSlots; slot++) {
      if (numMissing <= 0) return evictions;
      if (pinned.has(slot)) continue;
      const numKept = this.#blocksFor(this.#kvSlots.numKeptTokens(slot));
      shrink(slot, this.#kvSlots.isTaken(slot) ? Math.max(numKept, this.#numNeeded[slot]!) : numKept);
    }
    for (const slot of this.#kvSlots.freeSlots()) {
      if (numMissing <= 0) return evictions;
      if (pinned.has(slot)) continue;
      shrink(slot, MIN_BLOCKS);
      this.#forgetTokens(slot);
    }
    invariant(numMissing <= 0, `${numMissing} blocks of KV slots are missing`);
    return evictions;
  }

  /** Of the tokens of a free slot, keeps those that it has blocks for. Recurrent states go on only from all of them. */
  #forgetTokens(slot: number): void {
    const numLeft = numTokensIn(this.#plan, this.#numHeld[slot]!) - NUM_IDLE_TOKENS;
    if (numLeft >= this.#kvSlots.numKeptTokens(slot)) return;
    this.#kvSlots.forget(slot, this.#snapshots === null ? numLeft : 0);
    this.#snapshots?.dropAfter(slot, 0);
  }
}
