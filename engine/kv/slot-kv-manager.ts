/**
 * KV manager of the slot layout: each sequence owns one slot, which has addresses for the longest sequence. The memory
 * behind them is there for all slots, or shared by the tokens that are in them.
 */
import type { Sequence } from "../scheduler/sequence.ts";
import type { KvCapacity, KvManager, KvPlacement } from "./kv-manager.ts";
import type { KvSlots } from "./kv-slots.ts";
import { PrefixCache } from "./prefix-cache.ts";
import type { PrefixCacheOptions, SlotPlacement } from "./prefix-cache.ts";
import type { SlotBlocks } from "./slot-blocks.ts";
import type { SlotTransfer } from "./slot-transfer.ts";

/** Mutable; shares `KvSlots` with the decoder, which records how many tokens each slot keeps. */
export class SlotKvManager implements KvManager {
  readonly #kvSlots: KvSlots;
  readonly #prefixCache: PrefixCache;
  readonly #blocks: SlotBlocks | null;

  /** @param blocks Null if there is memory for all slots at full length. */
  constructor(kvSlots: KvSlots, options: PrefixCacheOptions, blocks: SlotBlocks | null = null) {
    this.#kvSlots = kvSlots;
    this.#prefixCache = new PrefixCache(kvSlots, options);
    this.#blocks = blocks;
  }

  get capacity(): KvCapacity {
    if (this.#blocks !== null) return this.#blocks.capacity;
    const { maxLen, numSlots } = this.#kvSlots;
    return { blockSize: maxLen, numBlocks: numSlots, numTokens: maxLen * numSlots };
  }

  get numFreeSequences(): number {
    return this.#kvSlots.numFree;
  }

  get usage(): number {
    return this.#blocks?.usage ?? this.#kvSlots.usage;
  }

  looksUpPrefix(sequence: Sequence): boolean {
    return this.#prefixCache.serves(sequence);
  }

  tryPlace(sequence: Sequence, stalled?: ReadonlySet<Sequence>): KvPlacement | null {
    const blocks = this.#blocks;
    if (blocks !== null && !blocks.fits(sequence.numTokensToPrefill)) return null;
    const stalledTokens = stalled && new Set(Array.from(stalled, ({ tokens }) => tokens));
    const placement = this.#prefixCache.tryPlace(sequence, (candidate) => this.#hasRoom(candidate), stalledTokens);
    if (placement === null) return null;
    return {
      numCachedTokens: placement.numCachedTokens,
      ...(placement.chunkEnds && { chunkEnds: placement.chunkEnds }),
      take: () => {
        const evictions = blocks?.makeRoom(this.#roomsOf(placement)) ?? [];
        const transfers = this.#prefixCache.take(sequence, placement);
        sequence.kvSlot = placement.kvSlot;
        blocks?.take(placement.kvSlot, placement.numCachedTokens);
        return [...evictions, ...transfers];
      },
    };
  }

  numTokensWithRoom({ kvSlot, numComputedTokens }: Sequence): number {
    return this.#blocks === null ? Infinity : this.#blocks.maxTokens(kvSlot!) - numComputedTokens;
  }

  reserve({ kvSlot }: Sequence, endToken: number): readonly SlotTransfer[] {
    return this.#blocks?.reserve(kvSlot!, endToken) ?? [];
  }

  /** The decoder records the kept tokens of a slot. */
  keepComputed(): void {}

  forgetDraft({ kvSlot, numComputedTokens }: Sequence): void {
    if (kvSlot === null || this.#kvSlots.numKeptTokens(kvSlot) <= numComputedTokens) return;
    this.#kvSlots.setNumKeptTokens(kvSlot, numComputedTokens);
  }

  release(sequence: Sequence, keepsTokens: boolean): void {
    if (sequence.kvSlot === null) return;
    this.#prefixCache.release(sequence.kvSlot, keepsTokens);
    this.#blocks?.free(sequence.kvSlot);
    sequence.kvSlot = null;
  }

  #hasRoom(placement: SlotPlacement): boolean {
    return this.#blocks === null || this.#blocks.fitTogether(this.#roomsOf(placement));
  }

  /** Tokens that each slot of the placement has afterwards; those of the prefix's slot are read. */
  #roomsOf({ kvSlot, numCachedTokens, prefixSlot, swappedSlot }: SlotPlacement): ReadonlyMap<number, number> {
    const rooms = new Map<number, number>();
    if (prefixSlot !== null) rooms.set(prefixSlot, this.#kvSlots.numKeptTokens(prefixSlot));
    if (swappedSlot !== null) rooms.set(swappedSlot, this.#kvSlots.numKeptTokens(kvSlot));
    return rooms.set(kvSlot, numCachedTokens);
  }
}
