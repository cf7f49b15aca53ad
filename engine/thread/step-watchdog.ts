/** Detects from outside the engine thread that a step does not end. */
import type { StepActivity, StepProgress } from "./step-progress.ts";

/** A step that has exceeded the limit and is still running. */
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
  #watchedStep = 0;
  #elapsedMs = 0;
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
    const { step, activity } = this.#progress.read();
    const isSameStep = activity !== null && step === this.#watchedStep;
    this.#watchedStep = step;
    this.#elapsedMs = isSameStep ? this.#elapsedMs + this.#pollMs : 0;
    if (!isSameStep) {
      if (this.#stall !== null) this.#change(null);
      return;
    }
    if (this.#elapsedMs < this.#timeoutMs) return;
    const isLasting = this.#elapsedMs >= this.#timeoutMs * LIMITS_UNTIL_LASTING;
    if (this.#stall === null || this.#stall.isLasting !== isLasting) {
      this.#change({ elapsedMs: this.#elapsedMs, activity, isLasting });
    }
  }

  #change(stall: StepStall | null): void {
    this.#stall = stall;
    this.#onChange(stall);
  }
}
