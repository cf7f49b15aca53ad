/** The order in which waiting sequences are admitted: by priority, then by arrival, and without starvation. */
import { invariant } from "../contract/errors.ts";
import type { Sequence } from "./sequence.ts";

/**
 * Sequences that may be admitted one after the other while an older one waits. The oldest goes next then, whatever its
 * priority: so many urgent requests finish first, and the others still get one admission of 33.
 */
export const MAX_OVERTAKES = 32;

/** Below 0 if `left` goes before `right`: a lower priority value, or an earlier arrival. */
function compareUrgency(left: Sequence, right: Sequence): number {
  return left.priority - right.priority || left.arrival - right.arrival;
}

/** Inserts the sequence into a list that is ordered by urgency. */
export function insertByUrgency(sequences: Sequence[], sequence: Sequence): void {
  // From the end, where almost every sequence belongs.
  const index = sequences.findLastIndex((other) => compareUrgency(other, sequence) < 0);
  sequences.splice(index + 1, 0, sequence);
}

/** Mutable. A preempted sequence keeps its arrival, and so its place before those that came later. */
export class WaitingQueue {
  /** By urgency. */
  #sequences: Sequence[] = [];
  /** Admissions since the oldest sequence was the next one. */
  #numOvertakes = 0;

  get length(): number {
    return this.#sequences.length;
  }

  /** By urgency. */
  [Symbol.iterator](): Iterator<Sequence> {
    return this.#sequences.values();
  }

  add(sequence: Sequence): void {
    insertByUrgency(this.#sequences, sequence);
  }

  /** The sequence to admit next; null if none waits. Stays the same until it is taken or a more urgent one arrives. */
  get next(): Sequence | null {
    const first = this.#sequences.at(0) ?? null;
    return first === null || this.#numOvertakes < MAX_OVERTAKES ? first : this.#oldest(first);
  }

  /** Removes `next`. */
  take(): void {
    const { next } = this;
    invariant(next !== null, "a sequence is taken from an empty queue");
    this.#numOvertakes = next === this.#oldest(next) ? 0 : this.#numOvertakes + 1;
    this.#sequences.splice(this.#sequences.indexOf(next), 1);
  }

  dropFinished(): void {
    this.#sequences = this.#sequences.filter(({ finishReason }) => finishReason === null);
  }

  #oldest(first: Sequence): Sequence {
    // Without a second priority, the first is the oldest.
    if (this.#sequences.at(-1)?.priority === this.#sequences.at(0)?.priority) return this.#sequences.at(0) ?? first;
    return this.#sequences.reduce((oldest, other) => (other.arrival < oldest.arrival ? other : oldest), first);
  }
}
