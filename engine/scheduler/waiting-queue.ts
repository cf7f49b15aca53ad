/** The order in which waiting sequences are admitted: by priority, then by arrival, and without starvation. */
import { invariant } from "../contract/errors.ts";
import type { Sequence } from "./sequence.ts";

/**
 * Sequences that may be admitted one after the other while an older one waits. The oldest goes next then, whatever its
 * priority: so many urgent requests finish first, and the others still get one admission of 33.
 */
export const MAX_OVERTAKES = 32;

const none: ReadonlySet<Sequence> = new Set();

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

  /** The most urgent ones. */
  first(count: number): readonly Sequence[] {
    return this.#sequences.slice(0, count);
  }

  add(sequence: Sequence): void {
    insertByUrgency(this.#sequences, sequence);
  }

  /**
   * The sequence to admit next, without those that are passed over; null if none is left. Stays the same until it is
   * taken or a more urgent one arrives.
   */
  next(passedOver: ReadonlySet<Sequence> = none): Sequence | null {
    const first = this.#sequences.find((sequence) => !passedOver.has(sequence)) ?? null;
    if (first === null || this.#numOvertakes < MAX_OVERTAKES) return first;
    const oldest = this.#oldest(first);
    return passedOver.has(oldest) ? first : oldest;
  }

  /** Removes a sequence that `next` returned. */
  take(sequence: Sequence): void {
    const index = this.#sequences.indexOf(sequence);
    invariant(index !== -1, `request ${sequence.requestId} is taken but does not wait`);
    this.#numOvertakes = sequence === this.#oldest(sequence) ? 0 : this.#numOvertakes + 1;
    this.#sequences.splice(index, 1);
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
