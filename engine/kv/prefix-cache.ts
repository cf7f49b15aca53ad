/** Prefix reuse: chooses the KV slot for a prompt, and the prompt tokens that need not be computed. */
import { invariant } from "../contract/errors.ts";
import { numSharedTokens } from "../scheduler/sequence.ts";
import type { Sequence, SequenceTokens } from "../scheduler/sequence.ts";
import { MAX_GAP } from "./kv-slots.ts";
import type { KvSlots } from "./kv-slots.ts";
import type { SlotTransfer } from "./slot-transfer.ts";
import { planSnapshots } from "./state-snapshots.ts";
import type { StateSnapshots } from "./state-snapshots.ts";

/** Computing a shorter prefix takes about as long as copying it or waiting for it. */
const MIN_SHARED_TOKENS = 16;

export interface SlotPlacement {
  /** A free slot. */
  readonly kvSlot: number;
  /** Leading prompt tokens that are reused; always fewer than all. */
  readonly numCachedTokens: number;
  /** The slot to copy them from; null if they are already in `kvSlot` (after the swap, if there is one). */
  readonly prefixSlot: number | null;
  /** The free slot with which `kvSlot` is swapped first; null for no swap. */
  readonly swappedSlot: number | null;
  /** Tokens after which recurrent states are going to be kept. Left out: none. */
  readonly chunkEnds?: readonly number[];
}

type ChosenSlot = Omit<SlotPlacement, "swappedSlot" | "chunkEnds">;

export interface PrefixCacheOptions {
  /** Default true; false reuses nothing. */
  readonly enablePrefixCaching?: boolean;
  /** Whether kept tokens can be moved to other slots, even while their sequence runs. */
  readonly canTransfer: boolean;
  /** Those of a decoder with recurrent layers; default null. */
  readonly snapshots?: StateSnapshots | null;
}

/** A slot, and the number of its tokens that a prompt shares and can reuse. */
interface Match {
  readonly slot: number;
  /** Tokens that can be reused. */
  readonly numTokens: number;
  /** Tokens whose keys and values could be reused. More than `numTokens` only if recurrent states are missing. */
  readonly numShared: number;
}

/**
 * Mutable; knows the tokens in each slot, while `KvSlots` knows their number.
 *
 * Prompts are compared with the slots token by token, not by block hashes. There are few slots, so the comparison takes
 * microseconds, it is exact, and a prefix may end at any token.
 *
 * Recurrent layers go on only from a state: the slot's own, after all of its tokens, or a snapshot. Snapshots are taken
 * near the end of a prompt, and where a prompt shared more tokens than it could reuse, because others may branch there.
 */
export class PrefixCache {
  readonly #kvSlots: KvSlots;
  readonly #isEnabled: boolean;
  readonly #canTransfer: boolean;
  readonly #snapshots: StateSnapshots | null;
  /** By slot; null for a slot that was never used. */
  readonly #tokens: (SequenceTokens | null)[];

  /** By slot: where snapshots of the running sequence's states are going to be taken. */
  readonly #chunkEnds: (readonly number[])[];

  constructor(kvSlots: KvSlots, { enablePrefixCaching = true, canTransfer, snapshots = null }: PrefixCacheOptions) {
    this.#kvSlots = kvSlots;
    this.#isEnabled = enablePrefixCaching;
    this.#canTransfer = canTransfer;
    this.#snapshots = snapshots;
    this.#tokens = Array.from({ length: kvSlots.numSlots }, () => null);
    this.#chunkEnds = Array.from({ length: kvSlots.numSlots }, () => []);
  }

  /** Whether a prefix is looked up for the sequence. Rows of all tokens need the whole computation of the prompt. */
  serves({ wantsPromptRows }: Sequence): boolean {
    return this.#isEnabled && !wantsPromptRows;
  }

  /**
   * Finds the slot with the longest shared prefix and takes it in place. If that slot is in use, or keeps more tokens
   * that another turn may need, the prefix is copied into the free slot whose own tokens are worth least. Returns null
   * if the sequence should wait because a running one is about to compute the prefix. Call it while a slot is free; it
   * changes nothing.
   *
   * Slots that are far apart decode in separate runs, and each run reads all weights. A slot far from the slots in use
   * is therefore swapped, with its tokens, with a free slot next to them.
   *
   * @param hasRoom Whether there is memory for a placement. Without it, nothing is swapped, and a prefix is taken in place
   *   even if its slot keeps more. Default: always.
   * @param stalled Tokens of running sequences whose prefixes are not waited for. Default: none.
   */
  tryPlace(
    sequence: Sequence,
    hasRoom: (placement: SlotPlacement) => boolean = () => true,
    stalled: ReadonlySet<SequenceTokens> = new Set(),
  ): SlotPlacement | null {
    const free = this.#kvSlots.findFree();
    invariant(free !== null, "a sequence is placed while all KV slots are taken");
    const placeNear = (chosen: ChosenSlot, chunkEnds: readonly number[]): SlotPlacement | null => {
      const placement = [this.#placeNear(chosen), { ...chosen, swappedSlot: null }].find(hasRoom);
      return placement === undefined ? null : { ...placement, ...(chunkEnds.length > 0 && { chunkEnds }) };
    };
    if (!this.serves(sequence)) return placeNear({ kvSlot: free, numCachedTokens: 0, prefixSlot: null }, []);
    const { tokens } = sequence;
    const best = this.#findBest(tokens, stalled);
    if (best === null) return null;
    const { slot, numTokens } = best;
    const chunkEndsAfter = (numCached: number): readonly number[] =>
      this.#snapshots === null ? [] : planSnapshots(numCached, best.numShared, sequence.numTokensToPrefill);
    if (numTokens >= MIN_SHARED_TOKENS && slot !== free) {
      const inPlace = { kvSlot: slot, numCachedTokens: numTokens, prefixSlot: null };
      const copied = { kvSlot: free, numCachedTokens: numTokens, prefixSlot: slot };
      const choices = [
        ...(this.#canTransfer && !this.#takesInPlace(best) ? [copied] : []),
        ...(this.#kvSlots.isTaken(slot) ? [] : [inPlace]),
      ];
      for (const chosen of choices) {
        const placement = placeNear(chosen, chunkEndsAfter(numTokens));
        if (placement !== null) return placement;
      }
    }
    const numCachedTokens = this.#matchOf(free, tokens).numTokens;
    return placeNear({ kvSlot: free, numCachedTokens, prefixSlot: null }, chunkEndsAfter(numCachedTokens));
  }

  #placeNear(placement: ChosenSlot): Omit<SlotPlacement, "chunkEnds"> {
    const { kvSlot, prefixSlot } = placement;
    const nearest = this.#canTransfer ? this.#kvSlots.findNearestFree() : null;
    if (nearest === null || this.#isNear(kvSlot) || !this.#isNear(nearest)) return { ...placement, swappedSlot: null };
    // The nearer slot's tokens are in the other slot by the time the prefix is copied.
    const movedPrefixSlot = prefixSlot === nearest ? kvSlot : prefixSlot;
    return { ...placement, kvSlot: nearest, prefixSlot: movedPrefixSlot, swappedSlot: kvSlot };
  }

  /** Whether the slot and the nearest one in use decode in one run. */
  #isNear(slot: number): boolean {
    return this.#kvSlots.distanceToTaken(slot) <= MAX_GAP + 1;
  }

  /** Takes the slot for the sequence. Returns the transfers to perform before its first chunk. */
  take(
    { tokens }: Sequence,
    { kvSlot, numCachedTokens, prefixSlot, swappedSlot, chunkEnds = [] }: SlotPlacement,
  ): SlotTransfer[] {
    const transfers: SlotTransfer[] = [];
    const numKeptInPlace = prefixSlot === null ? numCachedTokens : 0;
    if (swappedSlot !== null) {
      const numTokens = [this.#kvSlots.numKeptTokens(kvSlot), numKeptInPlace] as const;
      transfers.push({ kind: "swap", slots: [kvSlot, swappedSlot], numTokens });
      this.#kvSlots.swap(kvSlot, swappedSlot);
      this.#snapshots?.swap(kvSlot, swappedSlot);
      this.#tokens[swappedSlot] = this.#tokens[kvSlot] ?? null;
    }
    transfers.push(...this.#restoreStates(prefixSlot ?? kvSlot, kvSlot, numCachedTokens));
    if (prefixSlot !== null) {
      transfers.push({ kind: "copy", fromSlot: prefixSlot, toSlot: kvSlot, numTokens: numCachedTokens });
    }
    this.#kvSlots.take(kvSlot, numKeptInPlace);
    this.#snapshots?.dropAfter(kvSlot, numKeptInPlace);
    this.#tokens[kvSlot] = tokens;
    this.#chunkEnds[kvSlot] = chunkEnds;
    return transfers;
  }

  /** Brings the states after `numTokens` tokens of one slot to another, or back to the same one. */
  #restoreStates(fromSlot: number, toSlot: number, numTokens: number): readonly SlotTransfer[] {
    if (this.#snapshots === null || numTokens === 0) return [];
    const isNewest = numTokens === this.#kvSlots.numKeptTokens(fromSlot);
    if (isNewest && fromSlot === toSlot) return [];
    const fromRow = isNewest ? fromSlot : this.#snapshots.rowOf(fromSlot, numTokens);
    return [{ kind: "state", fromRow, toRow: toSlot }];
  }

  /** Returns the slot, with its tokens unless `keepsTokens` is false. */
  release(kvSlot: number, keepsTokens: boolean): void {
    if (!keepsTokens || !this.#isEnabled) {
      this.#kvSlots.setNumKeptTokens(kvSlot, 0);
      this.#snapshots?.dropAfter(kvSlot, 0);
    }
    this.#chunkEnds[kvSlot] = [];
    this.#kvSlots.free(kvSlot);
  }

  /**
   * The best match among the tokens that slots keep now; null if a sequence in progress will soon match better by
   * enough to wait. Those in `stalled` are not waited for.
   */
  #findBest(prompt: SequenceTokens, stalled: ReadonlySet<SequenceTokens>): Match | null {
    let best: Match = { slot: 0, numTokens: 0, numShared: 0 };
    let numShared = 0;
    let numAwaited = 0;
    for (let slot = 0; slot < this.#kvSlots.numSlots; slot++) {
      if (this.#kvSlots.isTaken(slot)) {
        if (!this.#canTransfer) continue;
        if (!stalled.has(this.#tokens[slot]!)) numAwaited = Math.max(numAwaited, this.#numAwaited(slot, prompt));
      }
      const match = this.#matchOf(slot, prompt);
      numShared = Math.max(numShared, match.numShared);
      if (this.#isBetter(match, best)) best = match;
    }
    return numAwaited - best.numTokens >= MIN_SHARED_TOKENS ? null : { ...best, numShared };
  }

  /** Among equal matches, prefers a free slot, then the slot that loses fewer other tokens. */
  #isBetter(match: Match, best: Match): boolean {
    if (match.numTokens !== best.numTokens) return match.numTokens > best.numTokens;
    const isTaken = this.#kvSlots.isTaken(match.slot);
    if (isTaken !== this.#kvSlots.isTaken(best.slot)) return !isTaken;
    return this.#kvSlots.numKeptTokens(match.slot) < this.#kvSlots.numKeptTokens(best.slot);
  }

  /**
   * False if most of the slot's tokens would be lost: a shared system prompt must not cost another conversation its
   * turns.
   */
  #takesInPlace({ slot, numTokens }: Match): boolean {
    if (this.#kvSlots.isTaken(slot)) return false;
    return !this.#canTransfer || 2 * numTokens >= this.#kvSlots.numKeptTokens(slot);
  }

  #matchOf(slot: number, prompt: SequenceTokens): Match {
    const numKept = this.#kvSlots.numKeptTokens(slot);
    const numShared = this.#numShared(slot, prompt, numKept);
    const hasStates = this.#snapshots === null || numShared === numKept;
    return { slot, numTokens: hasStates ? numShared : this.#snapshots.longest(slot, numShared), numShared };
  }

  /** Tokens that the prompt is going to share with a slot in use, and can reuse by then. */
  #numAwaited(slot: number, prompt: SequenceTokens): number {
    const numShared = this.#numShared(slot, prompt, this.#tokens[slot]?.promptTokenIds.length ?? 0);
    if (this.#snapshots === null) return numShared;
    const numComputed = this.#kvSlots.numKeptTokens(slot);
    return this.#chunkEnds[slot]!.findLast((end) => end <= numShared && end > numComputed) ?? 0;
  }

  /**
   * At most `limit`, and at most one less than the prompt's length: the last token must be computed to predict the
   * next.
   */
  #numShared(slot: number, prompt: SequenceTokens, limit: number): number {
    const tokens = this.#tokens[slot] ?? null;
    // The sequence itself, which was preempted: its output counts as well.
    if (tokens === prompt) return Math.min(limit, prompt.promptTokenIds.length + prompt.outputTokenIds.length - 1);
    return tokens === null ? 0 : numSharedTokens(tokens, prompt, Math.min(limit, prompt.promptTokenIds.length - 1));
  }
}
