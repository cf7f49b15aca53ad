/** Notices, from outside of the engine thread, that one of its steps does not end. */
import type { StepActivity, StepProgress } from "./step-progress.ts";

/** One step that has taken longer than the limit and is still under way. */
export interface StepStall {
  /** That the step has taken so far, at least. */
  readonly elapsedMs: number;
  readonly activity: StepActivity;
  /** Whether it has taken so long that only a restart is likely to help. */
  readonly isLasting: boolean;
}

/** After as many limits a stall counts as lasting: a step that was merely slow has had as long again to end. */
const LIMITS_UNTIL_LASTING = 2;
/** In one limit, so that a stall is noticed at most a tenth of it late. */
const LOOKS_PER_LIMIT = 10;
const MAX_POLL_MS = 1000;

/**
 * Mutable. Looks at the progress by a timer, and counts the looks that found the same step. A look that comes late counts
 * once: where the whole process was stopped (a paused container, a debugger), the step had no time to go on either.
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

  /**
   * @param onChange Called when a stall begins, when it has become a lasting one, and with null when its step has ended.
   */
  constructor(
    progress: StepProgress,
    { timeoutMs, onChange }: { readonly timeoutMs: number; readonly onChange: (stall: StepStall | null) => void },
  ) {
    this.#progress = progress;
    this.#timeoutMs = timeoutMs;
    this.#pollMs = Math.min(MAX_POLL_MS, timeoutMs / LOOKS_PER_LIMIT);
    this.#onChange = onChange;
  }

  /** Keeps no process alive. */
  start(): void {
    this.#timer ??= setInterval(() => this.look(), this.#pollMs).unref();
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** What the timer does. */
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
