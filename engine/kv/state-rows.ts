/**
 * Rows of the recurrent states in the paged layout. A running sequence has a pair of rows: a run reads one and writes the
 * other, so that a run that fails can be repeated.
 */
import { invariant } from "../contract/errors.ts";

/** The pair of sequences that pad a run. */
export const SCRATCH_STATE_PAIR = 0;

/** Rows of running sequences, and the scratch pair. */
export function numStateRows(maxNumSequences: number): number {
  return 2 * (maxNumSequences + 1);
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
    this.#newest = new Uint8Array(numStateRows(maxNumSequences) / 2);
  }

  /** The row that the next run reads. */
  read(pair: number): number {
    return 2 * pair + this.#newest[pair]!;
  }

  /** The row that the next run writes. */
  written(pair: number): number {
    return 2 * pair + 1 - this.#newest[pair]!;
  }

  /** Call it for each sequence of a run that succeeded. */
  advance(pair: number): void {
    this.#newest[pair] = 1 - this.#newest[pair]!;
  }
}
