/** The work of one user of a window: a batch, or all jobs. Work that the engine rejects waits outside of the window. */
import type { LineAnswer, PreparedLine } from "./answer-line.ts";
import type { WorkWindow } from "./work-window.ts";

/** From this try on, each try whose number is a power of two gets the whole window. */
const FIRST_TRY_ALONE = 4;

const givenUp: LineAnswer = { kind: "given up" };

/** Mutable. */
export class WindowShare {
  readonly #window: WorkWindow;
  readonly #stopping: AbortSignal;
  #numInside = 0;
  #weightInside = 0;
  #numPostponed = 0;

  /** @param stopping Aborted when no more work is to begin. */
  constructor(window: WorkWindow, stopping: AbortSignal) {
    this.#window = window;
    this.#stopping = stopping;
  }

  get numInside(): number {
    return this.#numInside;
  }

  get weightInside(): number {
    return this.#weightInside;
  }

  /** Outside, to be tried again. */
  get numPostponed(): number {
    return this.#numPostponed;
  }

  /** False if the work is stopped first; then it is outside. */
  async enter(weight: number): Promise<boolean> {
    if (!(await this.#window.tryEnter(weight, this.#stopping))) return false;
    this.#numInside += 1;
    this.#weightInside += weight;
    return true;
  }

  /**
   * For work inside with the weight of its sequences: answers it, passes the answer to `use`, and leaves. Work that the
   * engine rejects leaves the window meanwhile, so that other work passes it, and is tried again after as many changes
   * as it had tries. An answer that it gets alone, while no one else uses the engine, is final. The answer is "given up"
   * if the work is stopped, or `signal` aborted, between two tries.
   */
  async answer<Result>(
    { numSequences, answer }: PreparedLine,
    use: (answer: LineAnswer) => Promise<Result>,
    signal = this.#stopping,
  ): Promise<Result> {
    const window = this.#window;
    let weight = numSequences;
    for (let numTries = 1; ; numTries += 1) {
      let isPostponed = false;
      try {
        const isAlone = weight >= window.maxWeight && !window.hasOthers;
        const answered = this.#stopping.aborted ? givenUp : await answer();
        isPostponed = answered.kind === "busy" && !(isAlone && !window.hasOthers);
        if (!isPostponed) return await use(answered);
      } finally {
        this.#leave(weight, isPostponed);
      }
      this.#numPostponed += 1;
      try {
        await window.whenChangedOften(Math.min(numTries, window.maxWeight), [this.#stopping, signal]);
        const isAloneNext = !window.hasOthers || isTryAlone(numTries + 1);
        weight = isAloneNext ? Math.max(numSequences, window.maxWeight) : numSequences;
        if (signal.aborted || !(await this.enter(weight))) return await use(givenUp);
      } finally {
        this.#numPostponed -= 1;
      }
    }
  }

  #leave(weight: number, isPostponed: boolean): void {
    this.#numInside -= 1;
    this.#weightInside -= weight;
    if (isPostponed) this.#window.stepOut(weight);
    else this.#window.leave(weight);
  }
}

/** Large work needs the window for itself to be accepted; each such try holds up all other work. */
function isTryAlone(tryNumber: number): boolean {
  return tryNumber >= FIRST_TRY_ALONE && Number.isInteger(Math.log2(tryNumber));
}
