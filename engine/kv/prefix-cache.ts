/** Prefix reuse: which KV slot a prompt is computed in, and which of its tokens need not be computed. */
import { invariant } from "../contract/errors.ts";
import type { KvSlots } from "./kv-slots.ts";
import { numSharedTokens } from "../scheduler/sequence-tokens.ts";
import type { SequenceTokens } from "../scheduler/sequence-tokens.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { maxGap } from "./slot-ranges.ts";
import type { SlotTransfer } from "./slot-transfer.ts";

/** A shorter prefix is computed in about the time that copying it, or waiting for it, takes. */
const minSharedTokens = 16;

export interface SlotPlacement {
  /** A free slot. */
  readonly kvSlot: number;
  /** Leading tokens of the prompt that are reused, fewer than all. */
  readonly numCachedTokens: number;
  /** The slot they are to be copied from; null where they are kept in `kvSlot`, once it has changed places. */
  readonly prefixSlot: number | null;
  /** The free slot that `kvSlot` changes places with first; null where it does not. */
  readonly swappedSlot: number | null;
}

export interface PrefixCacheOptions {
  /** Default true; false reuses nothing. */
  readonly enablePrefixCaching?: boolean;
  /** Whether what slots keep can be brought to other slots, also while the sequence of the former runs. */
  readonly canTransfer: boolean;
}

/** A slot, and how many of its tokens a prompt shares. */
interface Match {
  readonly slot: number;
  readonly numTokens: number;
}

/**
 * Mutable; knows what each slot's tokens are, as `KvSlots` knows how many it keeps.
 *
 * Prompts are compared with the slots token by token instead of by hashes of blocks: slots are few, so this takes
 * microseconds, it is exact, and a prefix may end anywhere.
 */
export class PrefixCache {
  readonly #kvSlots: KvSlots;
  readonly #isEnabled: boolean;
  readonly #canTransfer: boolean;
  /** By slot; of a slot that was never taken, null. */
  readonly #tokens: (SequenceTokens | null)[];

  constructor(kvSlots: KvSlots, { enablePrefixCaching = true, canTransfer }: PrefixCacheOptions) {
    this.#kvSlots = kvSlots;
    this.#isEnabled = enablePrefixCaching;
    this.#canTransfer = canTransfer;
    this.#tokens = Array.from({ length: kvSlots.numSlots }, () => null);
  }

  /** Whether a prefix is looked up for the sequence: logprobs of a prompt are read from its whole computation. */
  serves({ samplingParams }: Sequence): boolean {
    return this.#isEnabled && samplingParams.promptLogprobs === null;
  }

  /**
   * The slot whose prefix matches best, taken in place; where it is in use, or keeps more that another turn may ask
   * for, the prefix is copied into the slot whose own tokens are missed least. Null when the sequence should wait,
   * since a running one is about to compute the prefix. To be called while a slot is free; changes nothing.
   *
   * Slots that decode apart from each other are apart in memory, and so in runs of their own, each of which reads all
   * weights. So a slot that lies off the ones in use changes places, tokens and all, with a free one beside them.
   */
  tryPlace(sequence: Sequence): SlotPlacement | null {
    const free = this.#kvSlots.findFree();
    invariant(free !== null, "a sequence is placed while all KV slots are taken");
    if (!this.serves(sequence)) return this.#placeNear({ kvSlot: free, numCachedTokens: 0, prefixSlot: null });
    const { tokens } = sequence;
    const best = this.#findBest(tokens);
    if (best === null) return null;
    const { slot, numTokens } = best;
    if (numTokens >= minSharedTokens && slot !== free) {
      if (this.#takesInPlace(best)) {
        return this.#placeNear({ kvSlot: slot, numCachedTokens: numTokens, prefixSlot: null });
      }
      if (this.#canTransfer) {
        return this.#placeNear({ kvSlot: free, numCachedTokens: numTokens, prefixSlot: slot });
      }
    }
    const numCachedTokens = this.#numReusable(free, tokens);
    return this.#placeNear({ kvSlot: free, numCachedTokens, prefixSlot: null });
  }

  #placeNear(placement: Omit<SlotPlacement, "swappedSlot">): SlotPlacement {
    const { kvSlot, prefixSlot } = placement;
    const nearest = this.#canTransfer ? this.#kvSlots.findNearestFree() : null;
    if (nearest === null || this.#isNear(kvSlot) || !this.#isNear(nearest)) return { ...placement, swappedSlot: null };
    // What lies in the nearer slot is found in the other by the time the prefix is copied.
    const movedPrefixSlot = prefixSlot === nearest ? kvSlot : prefixSlot;
    return { ...placement, kvSlot: nearest, prefixSlot: movedPrefixSlot, swappedSlot: kvSlot };
  }

  /** Whether the slot and the nearest one in use decode in one run. */
  #isNear(slot: number): boolean {
    return this.#kvSlots.distanceToTaken(slot) <= maxGap + 1;
  }

  /** Takes the slot for the sequence; returns what is to be moved before its first chunk is computed. */
  take({ tokens }: Sequence, { kvSlot, numCachedTokens, prefixSlot, swappedSlot }: SlotPlacement): SlotTransfer[] {
    const transfers: SlotTransfer[] = [];
    const numKeptInPlace = prefixSlot === null ? numCachedTokens : 0;
    if (swappedSlot !== null) {
      const numTokens = [this.#kvSlots.numKeptTokens(kvSlot), numKeptInPlace] as const;
      transfers.push({ kind: "swap", slots: [kvSlot, swappedSlot], numTokens });
      this.#kvSlots.swap(kvSlot, swappedSlot);
      this.#tokens[swappedSlot] = this.#tokens[kvSlot];
    }
    if (prefixSlot !== null) {
      transfers.push({ kind: "copy", fromSlot: prefixSlot, toSlot: kvSlot, numTokens: numCachedTokens });
    }
    this.#kvSlots.take(kvSlot, numKeptInPlace);
    this.#tokens[kvSlot] = tokens;
    return transfers;
  }

  /** Gives the slot back, with its tokens unless `keepsTokens` is false. */
  release(kvSlot: number, keepsTokens: boolean): void {
    if (!keepsTokens || !this.#isEnabled) this.#kvSlots.setNumKeptTokens(kvSlot, 0);
    this.#kvSlots.free(kvSlot);
  }

  /** The best match of what slots keep now; null when one that is under way will be better by enough to wait. */
  #findBest(prompt: SequenceTokens): Match | null {
    let best: Match = { slot: 0, numTokens: 0 };
    let numAwaited = 0;
    for (let slot = 0; slot < this.#kvSlots.numSlots; slot++) {
      if (this.#kvSlots.isTaken(slot)) {
        if (!this.#canTransfer) continue;
        numAwaited = Math.max(
          numAwaited,
          this.#numShared(slot, prompt, this.#tokens[slot]?.promptTokenIds.length ?? 0),
        );
      }
      const match = { slot, numTokens: this.#numReusable(slot, prompt) };
      if (this.#isBetter(match, best)) best = match;
    }
    return numAwaited - best.numTokens >= minSharedTokens ? null : best;
  }

  /** Of equal matches a free slot is better than one in use, and the one that loses fewer other tokens. */
  #isBetter(match: Match, best: Match): boolean {
    if (match.numTokens !== best.numTokens) return match.numTokens > best.numTokens;
    const isTaken = this.#kvSlots.isTaken(match.slot);
    if (isTaken !== this.#kvSlots.isTaken(best.slot)) return !isTaken;
    return this.#kvSlots.numKeptTokens(match.slot) < this.#kvSlots.numKeptTokens(best.slot);
  }

  /** Not where most of the slot would be lost: a system prompt in common must not cost another conversation its turns. */
  #takesInPlace({ slot, numTokens }: Match): boolean {
    if (this.#kvSlots.isTaken(slot)) return false;
    return !this.#canTransfer || 2 * numTokens >= this.#kvSlots.numKeptTokens(slot);
  }

  #numReusable(slot: number, prompt: SequenceTokens): number {
    return this.#numShared(slot, prompt, this.#kvSlots.numKeptTokens(slot));
  }

  /** At most `limit`, and one fewer than the prompt has: what follows is predicted by a token that is computed. */
  #numShared(slot: number, prompt: SequenceTokens, limit: number): number {
    const tokens = this.#tokens[slot];
    return tokens === null ? 0 : numSharedTokens(tokens, prompt, Math.min(limit, prompt.promptTokenIds.length - 1));
  }
}
