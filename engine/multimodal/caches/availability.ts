/** Tracks whether an external service works: unavailable from the first failure until a probe succeeds. */
import { setTimeout as delay } from "node:timers/promises";

/** Pause before the first probe; doubled after each further failure. */
const MIN_PAUSE_MS = 100;
/** Maximum pause between probes, and how often a flickering service can delay a request. */
const MAX_PAUSE_MS = 5_000;

/** Mutable. Probes run in the background, one at a time, and do not keep the process alive. */
export class Availability implements Disposable {
  readonly #probe: () => Promise<void>;
  readonly #closing = new AbortController();
  #isAvailable = true;
  #pauseMs = MIN_PAUSE_MS;

  /** @param probe A small version of the real calls. Rejects while they would fail, and ends in bounded time. */
  constructor(probe: () => Promise<void>) {
    this.#probe = probe;
  }

  get isAvailable(): boolean {
    return this.#isAvailable;
  }

  /** Reports that a real call, not a probe, succeeded. */
  reportSuccess(): void {
    if (this.#isAvailable) this.#pauseMs = MIN_PAUSE_MS;
  }

  /** Reports that a real call failed, so that no other request waits for one. */
  reportFailure(): void {
    if (!this.#isAvailable || this.#closing.signal.aborted) return;
    this.#isAvailable = false;
    void this.#probeUntilBack();
  }

  [Symbol.dispose](): void {
    this.#closing.abort();
  }

  async #probeUntilBack(): Promise<void> {
    while (!this.#isAvailable && !this.#closing.signal.aborted) {
      const pauseMs = this.#pauseMs;
      this.#pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
      try {
        await delay(pauseMs, null, { signal: this.#closing.signal, ref: false });
        await this.#probe();
        this.#isAvailable = true;
      } catch {
        // Still unavailable, or being disposed of.
      }
    }
  }
}
