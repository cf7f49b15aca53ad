/**
 * Rows of the recurrent states in the paged layout. A running sequence has a pair of rows: a run reads one and writes the
 * other, so that a run that fails can be repeated. The other rows keep snapshots; see `BlockSnapshots`.
 */
import { invariant } from "../contract/errors.ts";

/** The pair of sequences that pad a run. They read its first row and write its second one. */
export const SCRATCH_STATE_PAIR = 0;

/** The first row of the scratch pair, which nothing writes: zeros, the state before a sequence's first token. */
export const ZERO_STATE_ROW = 0;

/** The second row of the scratch pair. Its contents are never used. */
export const SCRATCH_STATE_ROW = 1;

/** As many as a KV slot has. */
export const SNAPSHOTS_PER_SEQUENCE = 2;

/** The first row after the pairs: those of running sequences, and the scratch pair. Snapshots follow. */
export function firstSnapshotRow(maxNumSequences: number): number {
  return 2 * (maxNumSequences + 1);
}

/** Rows of pairs and snapshots. */
export function numStateRows(maxNumSequences: number): number {
  return firstSnapshotRow(maxNumSequences) + SNAPSHOTS_PER_SEQUENCE * maxNumSequences;
}

/** The row of a pair that receives the state from which a sequence goes on. */
export function restoredRow(pair: number): number {
  return 2 * pair;
}

/** Mutable: which pairs are in use. */
export class StatePairs {
  readonly #free: number[];

  constructor(maxNumSequences: number) {
    this.#free = Array.from({ length: maxNumSequences }, (_, index) => maxNumSequences - index);
  }

  take(): number {
    const pair = this.#free.pop();
    invariant(pair !== undefined, "a sequence is placed while all states are taken");
    return pair;
  }

  release(pair: number): void {
    this.#free.push(pair);
  }
}

/** Mutable: which row of each pair has the newest state. */
export class NewestRows {
  /** [pairs]: 0 or 1. */
  readonly #newest: Uint8Array;

  constructor(maxNumSequences: number) {
    this.#newest = new Uint8Array(firstSnapshotRow(maxNumSequences) / 2);
  }

  /** The row that the next run reads. */
  read(pair: number): number {
    return 2 * pair + this.#newest[pair]!;
  }

  /** The row that the next run writes. */
  written(pair: number): number {
    return 2 * pair + 1 - this.#newest[pair]!;
  }

  /** The next run of the row's pair reads it. */
  restore(row: number): void {
    this.#newest[row >> 1] = row & 1;
  }

  /** Call it for each sequence of a run that succeeded. */
  advance(pair: number): void {
    this.#newest[pair] = 1 - this.#newest[pair]!;
  }
}
