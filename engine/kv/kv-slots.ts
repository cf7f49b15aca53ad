/**
 * Tracks which KV slots are taken, how many tokens each keeps, which one to reuse for a new sequence,
 * and which neighbours run as one batch.
 */
import { invariant } from "../contract/errors.ts";

/**
 * Mutable. The scheduler takes and frees slots; the runner records what it has written. A freed slot keeps its tokens
 * until it is taken again.
 */
export class KvSlots {
  readonly numSlots: number;
  /** Positions of one slot. */
  readonly maxLen: number;
  readonly #isTaken: Uint8Array;
  /** By slot: leading positions that must not be overwritten. */
  readonly #numKeptTokens: Int32Array;
  /** By slot: how many slots had been freed when it was freed. */
  readonly #freedAt: Float64Array;
  #numFreed = 0;
  #numTaken = 0;
  /** Sum over taken slots. */
  #numTokensInUse = 0;

  constructor(numSlots: number, maxLen: number) {
    this.numSlots = numSlots;
    this.maxLen = maxLen;
    this.#isTaken = new Uint8Array(numSlots);
    this.#numKeptTokens = new Int32Array(numSlots);
    this.#freedAt = new Float64Array(numSlots);
  }

  get numFree(): number {
    return this.numSlots - this.#numTaken;
  }

  /** Share of all positions that hold a token of a running sequence, 0 to 1. */
  get usage(): number {
    return this.#numTokensInUse / (this.numSlots * this.maxLen);
  }

  isTaken(slot: number): boolean {
    return this.#isTaken[slot] === 1;
  }

  /**
   * The free slot whose tokens are worth least: the lowest slot without tokens, so that slots in use stay close
   * together, otherwise the one that was freed first. Null if all are taken.
   */
  findFree(): number | null {
    let oldest: number | null = null;
    for (let slot = 0; slot < this.numSlots; slot++) {
      if (this.isTaken(slot)) continue;
      if (this.#numKeptTokens[slot] === 0) return slot;
      if (oldest === null || this.#freedAt[slot]! < this.#freedAt[oldest]!) oldest = slot;
    }
    return oldest;
  }

  /** The free slot nearest to a taken one, the lower of two. Null if no slot is free or none is taken. */
  findNearestFree(): number | null {
    let nearest: number | null = null;
    for (let slot = 0; slot < this.numSlots; slot++) {
      if (this.isTaken(slot)) continue;
      if (nearest === null || this.distanceToTaken(slot) < this.distanceToTaken(nearest)) nearest = slot;
    }
    return nearest === null || this.#numTaken === 0 ? null : nearest;
  }

  /** Distance from the slot to the nearest taken one; Infinity if none is taken. */
  distanceToTaken(slot: number): number {
    for (let distance = 0; distance < this.numSlots; distance++) {
      if (this.#isTaken[slot - distance] === 1 || this.#isTaken[slot + distance] === 1) return distance;
    }
    return Number.POSITIVE_INFINITY;
  }

  /** Swaps the kept tokens of two free slots. */
  swap(first: number, second: number): void {
    invariant(!this.isTaken(first) && !this.isTaken(second), `KV slot ${first} or ${second} is moved while taken`);
    for (const values of [this.#numKeptTokens, this.#freedAt]) {
      [values[first], values[second]] = [values[second]!, values[first]!];
    }
  }

  /** Keeps only the first `numTokens` of the slot's tokens. */
  take(slot: number, numTokens: number): void {
    invariant(!this.isTaken(slot), `KV slot ${slot} is taken twice`);
    const numKept = this.#numKeptTokens[slot]!;
    invariant(numTokens <= numKept, `${numTokens} tokens of KV slot ${slot} are reused; it keeps ${numKept}`);
    this.#isTaken[slot] = 1;
    this.#numTaken++;
    this.#numKeptTokens[slot] = numTokens;
    this.#numTokensInUse += numTokens;
  }

  free(slot: number): void {
    invariant(this.isTaken(slot), `KV slot ${slot} is freed but not taken`);
    this.#isTaken[slot] = 0;
    this.#numTaken--;
    this.#numTokensInUse -= this.#numKeptTokens[slot]!;
    this.#freedAt[slot] = ++this.#numFreed;
  }

  /** The slots that are not taken, those that were freed first in front. */
  freeSlots(): number[] {
    const slots = Array.from({ length: this.numSlots }, (_, slot) => slot).filter((slot) => !this.isTaken(slot));
    return slots.sort((left, right) => this.#freedAt[left]! - this.#freedAt[right]!);
  }

  /** Keeps only the first `numTokens` of the tokens of a free slot. */
  forget(slot: number, numTokens: number): void {
    invariant(!this.isTaken(slot), `tokens of KV slot ${slot} are evicted while it is taken`);
    this.#numKeptTokens[slot] = Math.min(numTokens, this.#numKeptTokens[slot]!);
  }

  numKeptTokens(slot: number): number {
    return this.#numKeptTokens[slot]!;
  }

  /** The slot must be taken. */
  setNumKeptTokens(slot: number, numTokens: number): void {
    invariant(this.isTaken(slot), `KV slot ${slot} is written to but not taken`);
    invariant(numTokens < this.maxLen, `KV slot ${slot} keeps ${numTokens} tokens; it has ${this.maxLen} positions`);
    this.#numTokensInUse += numTokens - this.#numKeptTokens[slot]!;
    this.#numKeptTokens[slot] = numTokens;
  }
}

/** Neighbouring slots that run as one batch. */
export interface SlotRange {
  readonly firstSlot: number;
  readonly numSlots: number;
}

/**
 * An idle row costs about as much as a row that decodes. A separate run costs about as much as a few rows; with
 * quantised weights, a step of one sequence takes twice what a row adds to a batch. A wider gap therefore splits the
 * range.
 */
export const MAX_GAP = 2;

/**
 * Covers `slots` (ascending, no duplicates) with ranges of neighbours in ascending order. Slots in between that are not
 * listed are computed as well.
 */
export function coverSlots(slots: readonly number[], maxSlotsPerRun: number): SlotRange[] {
  const ranges: SlotRange[] = [];
  let firstSlot = 0;
  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index]!;
    if (index === 0) firstSlot = slot;
    const next = slots[index + 1];
    const goesOn = next !== undefined && next - slot - 1 <= MAX_GAP && next - firstSlot < maxSlotsPerRun;
    if (goesOn) continue;
    ranges.push({ firstSlot, numSlots: slot - firstSlot + 1 });
    if (next !== undefined) firstSlot = next;
  }
  return ranges;
}
