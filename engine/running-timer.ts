/**
 * Time limits that count only while the process runs. A container may be paused, and a machine suspended, for minutes: by
 * the clock, every time limit is over when it continues, although what it waits for may have arrived meanwhile.
 */

/** A late look counts as two of them. */
const NUM_LOOKS = 8;
const MAX_LOOK_MS = 1000;
/** Timers of Node take no more, and fire at once if they have more. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `onElapsed` once when the process has run for `timeoutMs`; disposing of it earlier prevents that. Data that has
 * arrived by then is received first: after a pause, timers run before sockets are read. Mutable.
 */
export class RunningTimer implements Disposable {
  readonly #onElapsed: () => void;
  readonly #timeoutMs: number;
  readonly #lookMs: number;
  #timer: NodeJS.Timeout;
  #immediate: NodeJS.Immediate | undefined;
  #lookedAt = performance.now();
  #countedMs = 0;

  /** @param timeoutMs May be infinite. */
  constructor(timeoutMs: number, onElapsed: () => void) {
    this.#timeoutMs = Math.min(timeoutMs, LONGEST_TIMER_MS);
    this.#onElapsed = onElapsed;
    this.#lookMs = Math.min(MAX_LOOK_MS, Math.ceil(this.#timeoutMs / NUM_LOOKS));
    this.#timer = setTimeout(this.#look, this.#lookMs);
  }

  /** Time for which the process has run since the start. */
  get elapsedMs(): number {
    return this.#countedMs + Math.min(performance.now() - this.#lookedAt, 2 * this.#lookMs);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }

  readonly #look = (): void => {
    this.#countedMs = this.elapsedMs;
    this.#lookedAt = performance.now();
    const leftMs = this.#timeoutMs - this.#countedMs;
    if (leftMs > 0) this.#timer = setTimeout(this.#look, Math.min(this.#lookMs, Math.ceil(leftMs)));
    else this.#immediate = setImmediate(this.#onElapsed);
  };
}
