/** Checks from outside of a scheduler that its steps keep the order of priorities and arrivals. */
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import type { SchedulerOutput } from "../../../engine/scheduler/scheduler-output.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import { MAX_OVERTAKES } from "../../../engine/scheduler/waiting-queue.ts";

interface Known {
  readonly requestId: string;
  readonly priority: number;
  readonly arrival: number;
  /** Null before its first admission. */
  sequence: Sequence | null;
  isRunning: boolean;
  numPreemptions: number;
}

/** Mutable. Throws for the first step that breaks the order. */
export class OrderCheck {
  readonly #known = new Map<string, Known>();
  #numArrived = 0;
  #numOvertakes = 0;

  add({ requestId, priority = 0 }: EngineRequest): void {
    const arrival = this.#numArrived++;
    this.#known.set(requestId, { requestId, priority, arrival, sequence: null, isRunning: false, numPreemptions: 0 });
  }

  drop(ended: readonly { readonly requestId: string }[]): void {
    for (const { requestId } of ended) this.#known.delete(requestId);
  }

  /** Sequences of a step without memory are preempted, however urgent they are. */
  notePreempted(sequences: Iterable<Sequence>): void {
    for (const { requestId, numPreemptions } of sequences) {
      const known = this.#known.get(requestId);
      if (known === undefined || known.numPreemptions === numPreemptions) continue;
      known.numPreemptions = numPreemptions;
      known.isRunning = false;
    }
  }

  check({ decodes, prefills }: SchedulerOutput): void {
    this.#checkPreemptions();
    for (const { sequence } of prefills) this.#checkAdmission(sequence);
    for (const sequence of decodes) {
      if (this.#known.get(sequence.requestId)?.isRunning !== true) {
        throw new Error(`Request ${sequence.requestId} decodes without having been admitted.`);
      }
    }
  }

  #checkPreemptions(): void {
    const preempted: Known[] = [];
    for (const known of this.#known.values()) {
      const numPreemptions = known.sequence?.numPreemptions ?? 0;
      if (numPreemptions === known.numPreemptions) continue;
      known.numPreemptions = numPreemptions;
      known.isRunning = false;
      preempted.push(known);
    }
    const running = [...this.#known.values()].filter(({ isRunning }) => isRunning);
    for (const victim of preempted) {
      const kept = running.find((other) => isBefore(victim, other));
      if (kept !== undefined)
        throw new Error(`${victim.requestId} was preempted before the less urgent ${kept.requestId}.`);
    }
  }

  #checkAdmission(sequence: Sequence): void {
    const admitted = this.#known.get(sequence.requestId);
    if (admitted === undefined || admitted.isRunning) return;
    const waiting = [...this.#known.values()].filter(({ isRunning }) => !isRunning);
    const oldest = waiting.reduce((left, right) => (right.arrival < left.arrival ? right : left));
    const expected =
      this.#numOvertakes < MAX_OVERTAKES
        ? waiting.reduce((left, right) => (isBefore(right, left) ? right : left))
        : oldest;
    if (expected !== admitted) throw new Error(`${admitted.requestId} was admitted before ${expected.requestId}.`);
    this.#numOvertakes = admitted === oldest ? 0 : this.#numOvertakes + 1;
    admitted.sequence = sequence;
    admitted.isRunning = true;
  }
}

function isBefore(left: Known, right: Known): boolean {
  return left.priority < right.priority || (left.priority === right.priority && left.arrival < right.arrival);
}
