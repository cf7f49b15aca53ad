/** KV manager of the slot layout: each sequence owns one slot, which has room for the longest sequence. */
import type { Sequence } from "../scheduler/sequence.ts";
import type { KvCapacity, KvManager, KvPlacement } from "./kv-manager.ts";
import type { KvSlots } from "./kv-slots.ts";
import { PrefixCache } from "./prefix-cache.ts";
import type { PrefixCacheOptions } from "./prefix-cache.ts";

/** Mutable; shares `KvSlots` with the decoder, which records how many tokens each slot keeps. */
export class SlotKvManager implements KvManager {
  readonly #kvSlots: KvSlots;
  readonly #prefixCache: PrefixCache;

  constructor(kvSlots: KvSlots, options: PrefixCacheOptions) {
    this.#kvSlots = kvSlots;
    this.#prefixCache = new PrefixCache(kvSlots, options);
  }

  get capacity(): KvCapacity {
    const { maxLen, numSlots } = this.#kvSlots;
    return { blockSize: maxLen, numBlocks: numSlots, numTokens: maxLen * numSlots };
  }

  get numFreeSequences(): number {
    return this.#kvSlots.numFree;
  }

  get usage(): number {
    return this.#kvSlots.usage;
  }

  looksUpPrefix(sequence: Sequence): boolean {
    return this.#prefixCache.serves(sequence);
  }

  tryPlace(sequence: Sequence): KvPlacement | null {
    const placement = this.#prefixCache.tryPlace(sequence);
    if (placement === null) return null;
    return {
      numCachedTokens: placement.numCachedTokens,
      ...(placement.chunkEnds && { chunkEnds: placement.chunkEnds }),
      take: () => {
        const transfers = this.#prefixCache.take(sequence, placement);
        sequence.kvSlot = placement.kvSlot;
        return transfers;
      },
    };
  }

  /** A slot has room for the longest sequence. */
  numTokensWithRoom(): number {
    return Infinity;
  }

  reserve(): void {}

  /** The decoder records the kept tokens of a slot. */
  keepComputed(): void {}

  release(sequence: Sequence, keepsTokens: boolean): void {
    if (sequence.kvSlot === null) return;
    this.#prefixCache.release(sequence.kvSlot, keepsTokens);
    sequence.kvSlot = null;
  }
}
