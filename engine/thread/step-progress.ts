/**
 * The engine thread's current activity, and whether the vision encoder runs beside it, in memory shared with the thread that watches it. Writing needs no message and
 * reading needs no answer, so it can be read while a step never ends.
 */

/** `step` counts started steps; `activity` is null between steps. */
export interface StepReading {
  readonly step: number;
  readonly activity: StepActivity | null;
  /** Counts started runs of the vision encoder beside steps. */
  readonly encoding: number;
  readonly isEncoding: boolean;
}

export type StepActivity =
  | { readonly kind: "scheduling" | "model" | "sampling" }
  /** The code of the custom logits processor at this position, in the order of application. */
  | { readonly kind: "processor"; readonly index: number };

const STEP_CELL = 0;
const ACTIVITY_CELL = 1;
const ENCODING_CELL = 2;
const IS_ENCODING_CELL = 3;
const NUM_CELLS = 4;

const IDLE = 0;
const codeOf = { scheduling: 1, model: 2, sampling: 3 } as const;
const kinds = ["scheduling", "model", "sampling"] as const;
const FIRST_PROCESSOR_CODE = 4;

/** A write is one atomic store of about 20 ns. A step makes about six, and two more per custom processor. */
export class StepProgress {
  /** Give it to the other thread. */
  readonly buffer: SharedArrayBuffer;
  readonly #cells: Int32Array;

  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(NUM_CELLS * Int32Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer;
    this.#cells = new Int32Array(buffer);
  }

  beginStep(): void {
    Atomics.add(this.#cells, STEP_CELL, 1);
    this.enter("scheduling");
  }

  enter(kind: keyof typeof codeOf): void {
    Atomics.store(this.#cells, ACTIVITY_CELL, codeOf[kind]);
  }

  enterProcessor(index: number): void {
    Atomics.store(this.#cells, ACTIVITY_CELL, FIRST_PROCESSOR_CODE + index);
  }

  endStep(): void {
    Atomics.store(this.#cells, ACTIVITY_CELL, IDLE);
  }

  beginEncoding(): void {
    Atomics.add(this.#cells, ENCODING_CELL, 1);
    Atomics.store(this.#cells, IS_ENCODING_CELL, 1);
  }

  endEncoding(): void {
    Atomics.store(this.#cells, IS_ENCODING_CELL, 0);
  }

  read(): StepReading {
    const code = Atomics.load(this.#cells, ACTIVITY_CELL);
    return {
      step: Atomics.load(this.#cells, STEP_CELL),
      activity: activityOf(code),
      encoding: Atomics.load(this.#cells, ENCODING_CELL),
      isEncoding: Atomics.load(this.#cells, IS_ENCODING_CELL) === 1,
    };
  }
}

function activityOf(code: number): StepActivity | null {
  if (code === IDLE) return null;
  if (code >= FIRST_PROCESSOR_CODE) return { kind: "processor", index: code - FIRST_PROCESSOR_CODE };
  return { kind: kinds[code - 1]! };
}
