/**
 * Snapshots of recurrent states: which rows hold the state of which slot, after how many tokens. A prompt that shares
 * tokens with a slot can only go on from a snapshot, or from the slot's own state after all of its tokens.
 */
import { invariant } from "../contract/errors.ts";

/** One where a prompt branched off from another, and one near the end of the prompt, for the next turn. */
export const SNAPSHOTS_PER_SLOT = 2;

/** A snapshot that saves fewer tokens costs more than them: it cuts the prompt into one more run. */
const MIN_SNAPSHOT_TOKENS = 32;

/**
 * The next turn of a conversation usually repeats a prompt without its last tokens, which open the answer and its
 * thinking.
 */
const SNAPSHOT_MARGIN = 16;

/**
 * Tokens after which the states of a prompt are to be kept: where it branches off from others, and near its end.
 *
 * @param numCached Tokens that are not computed.
 * @param numShared Tokens that it shares with others. More than `numCached` where states were missing.
 * @param alignment The states are kept after multiples of this number only.
 */
export function planSnapshots(numCached: number, numShared: number, numTokens: number, alignment = 1): number[] {
  const planned: number[] = [];
  for (const wanted of [numShared, numTokens - SNAPSHOT_MARGIN]) {
    const end = Math.floor(wanted / alignment) * alignment;
    if (end - (planned.at(-1) ?? numCached) >= MIN_SNAPSHOT_TOKENS) planned.push(end);
  }
  return planned;
}

interface Snapshot {
  slot: number;
  /** Number of tokens after which the state was copied. */
  numTokens: number;
  lastUse: number;
}

/** Mutable; the scheduler's side looks up, the decoder adds. Rows follow those of the slots. */
export class StateSnapshots {
  readonly #numSlots: number;
  /** By row, without those of the slots; null for a free one. */
  readonly #rows: (Snapshot | null)[];
  #numUses = 0;

  constructor(numSlots: number) {
    this.#numSlots = numSlots;
    this.#rows = Array.from({ length: numSlots * SNAPSHOTS_PER_SLOT }, () => null);
  }

  /** Rows of all slots and snapshots. */
  get numRows(): number {
    return this.#numSlots + this.#rows.length;
  }

  /** The most tokens, at most `limit`, after which there is a snapshot of the slot; 0 if there is none. */
  longest(slot: number, limit: number): number {
    let longest = 0;
    for (const snapshot of this.#rows) {
      if (snapshot?.slot === slot && snapshot.numTokens <= limit) longest = Math.max(longest, snapshot.numTokens);
    }
    return longest;
  }

  /** The row of a snapshot that `longest` found. Counts as a use. */
  rowOf(slot: number, numTokens: number): number {
    const index = this.#rows.findIndex((snapshot) => snapshot?.slot === slot && snapshot.numTokens === numTokens);
    invariant(index >= 0, `KV slot ${slot} has no snapshot after ${numTokens} tokens`);
    this.#rows[index]!.lastUse = ++this.#numUses;
    return this.#numSlots + index;
  }

  /** The row for a new snapshot: a free one, or that of the least recently used. */
  add(slot: number, numTokens: number): number {
    let index = 0;
    for (let row = 0; row < this.#rows.length; row++) {
      const snapshot = this.#rows[row]!;
      if (snapshot === null || (snapshot.slot === slot && snapshot.numTokens === numTokens)) {
        index = row;
        break;
      }
      if (snapshot.lastUse < this.#rows[index]!.lastUse) index = row;
    }
    this.#rows[index] = { slot, numTokens, lastUse: ++this.#numUses };
    return this.#numSlots + index;
  }

  /** Forgets the slot's snapshots after more than `numTokens` tokens: these tokens are going to be replaced. */
  dropAfter(slot: number, numTokens: number): void {
    for (let row = 0; row < this.#rows.length; row++) {
      const snapshot = this.#rows[row];
      if (snapshot?.slot === slot && snapshot.numTokens > numTokens) this.#rows[row] = null;
    }
  }

  /** The two slots swap their tokens. */
  swap(first: number, second: number): void {
    for (const snapshot of this.#rows) {
      if (snapshot?.slot === first) snapshot.slot = second;
      else if (snapshot?.slot === second) snapshot.slot = first;
    }
  }
}
