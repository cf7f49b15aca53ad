/**
 * The engine thread's current activity, in memory that it shares with the thread that watches it, and the watchdog that
 * detects a step, or a run of the vision encoder beside it, that does not end. Writing needs no message and reading needs
 * no answer, so the progress can be read while a step never ends.
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

/** A step, or a run of the vision encoder, that has exceeded the limit and is still running. */
export interface StepStall {
  /** Minimum time that the step has taken so far. */
  readonly elapsedMs: number;
  readonly activity: StepActivity;
  /** Whether the step has taken so long that only a restart is likely to help. */
  readonly isLasting: boolean;
}

/** A stall is lasting after this many limits: a merely slow step has had as much time again. */
const LIMITS_UNTIL_LASTING = 2;
/** Checks per limit, so that a stall is detected at most a tenth of the limit late. */
const LOOKS_PER_LIMIT = 10;
const MAX_POLL_MS = 1000;

/**
 * Mutable. Checks the progress by a timer and counts the checks that found the same step. A late check counts once: if
 * the whole process was stopped (a paused container, a debugger), the step could not continue either.
 */
export class StepWatchdog {
  readonly #progress: StepProgress;
  readonly #timeoutMs: number;
  readonly #pollMs: number;
  readonly #onChange: (stall: StepStall | null) => void;
  #timer: NodeJS.Timeout | null = null;
  readonly #step: Watched = { number: null, elapsedMs: 0 };
  readonly #encoding: Watched = { number: null, elapsedMs: 0 };
  #stall: StepStall | null = null;

  /** @param onChange Called when a stall starts, when it becomes lasting, and with null when its step has ended. */
  constructor(
    progress: StepProgress,
    { timeoutMs, onChange }: { readonly timeoutMs: number; readonly onChange: (stall: StepStall | null) => void },
  ) {
    this.#progress = progress;
    this.#timeoutMs = timeoutMs;
    this.#pollMs = Math.min(MAX_POLL_MS, timeoutMs / LOOKS_PER_LIMIT);
    this.#onChange = onChange;
  }

  /** Does not keep the process alive. */
  start(): void {
    this.#timer ??= setInterval(() => this.look(), this.#pollMs).unref();
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** One check of the timer. */
  look(): void {
    const { step, activity, encoding, isEncoding } = this.#progress.read();
    this.#follow(this.#step, activity === null ? null : step);
    this.#follow(this.#encoding, isEncoding ? encoding : null);
    const stall = this.#stallOf(this.#step, activity ?? inModel) ?? this.#stallOf(this.#encoding, inModel);
    if (stall?.isLasting === this.#stall?.isLasting) return;
    this.#stall = stall;
    this.#onChange(stall);
  }

  #follow(watched: Watched, number: number | null): void {
    const isSame = number !== null && number === watched.number;
    watched.elapsedMs = isSame ? watched.elapsedMs + this.#pollMs : 0;
    watched.number = number;
  }

  #stallOf({ elapsedMs }: Watched, activity: StepActivity): StepStall | null {
    if (elapsedMs < this.#timeoutMs) return null;
    return { elapsedMs, activity, isLasting: elapsedMs >= this.#timeoutMs * LIMITS_UNTIL_LASTING };
  }
}

/** Mutable: the number of what was running at the last check, and the time for which it has been seen. */
interface Watched {
  number: number | null;
  elapsedMs: number;
}

const inModel: StepActivity = { kind: "model" };
