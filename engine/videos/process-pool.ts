/** Keeps decoding processes from one video to the next. */
import { startDecoderProcess, type DecoderProcess } from "./decoder-process.ts";

/** A process starts on demand and ends after this time, so that an idle replica holds no decoder memory. */
const IDLE_TIMEOUT_MS = 30_000;

/** Processes that work and processes that wait. Mutable. */
export class ProcessPool {
  readonly #maxMemoryBytes: number;
  readonly #alive = new Set<DecoderProcess>();
  /** Each with the timer that ends it. */
  readonly #idle = new Map<DecoderProcess, NodeJS.Timeout>();

  /** @param maxMemoryBytes Of each process. */
  constructor(maxMemoryBytes: number) {
    this.#maxMemoryBytes = maxMemoryBytes;
  }

  /** A waiting process, or a new one. */
  take(): DecoderProcess {
    for (const [process, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(process);
      if (process.hasEnded) continue;
      process.setReferenced(true);
      return process;
    }
    return this.start();
  }

  /** A new process. */
  start(): DecoderProcess {
    const process = startDecoderProcess(this.#maxMemoryBytes);
    this.#alive.add(process);
    void process.ended.then(() => this.#alive.delete(process));
    return process;
  }

  /** A process without work does not keep its parent alive. */
  giveBack(process: DecoderProcess): void {
    if (process.hasEnded) return;
    process.setReferenced(false);
    const timer = setTimeout(() => {
      this.#idle.delete(process);
      process.end();
    }, IDLE_TIMEOUT_MS);
    this.#idle.set(process, timer.unref());
  }

  /** Ends all processes and waits until they are gone. */
  async end(): Promise<void> {
    for (const timer of this.#idle.values()) clearTimeout(timer);
    this.#idle.clear();
    const processes = [...this.#alive];
    for (const process of processes) {
      process.setReferenced(true);
      process.end();
    }
    await Promise.all(processes.map(({ ended }) => ended));
  }
}
