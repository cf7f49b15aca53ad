/** The times of the parts of this process's start, for /metrics and the log. */
import type { StartPhase } from "../engine/index.ts";

/**
 * `process`: from the start of the process to the open port. `total`: from the start of the process until requests are
 * served.
 */
export type ServiceStartPhase = "process" | StartPhase | "total";

/** Mutable; one per process. */
export class StartTimes {
  readonly #seconds = new Map<ServiceStartPhase, number>();

  /** In the order in which the phases ended. */
  get seconds(): ReadonlyMap<ServiceStartPhase, number> {
    return this.#seconds;
  }

  #record(phase: ServiceStartPhase, seconds: number): void {
    this.#seconds.set(phase, seconds);
  }

  /** The end of `process`. Also the start of `modules`, since the service's own modules load before the engine's. */
  recordListening(): void {
    this.#record("process", performance.now() / 1000);
  }

  recordOfEngine(phase: StartPhase, seconds: number): void {
    const listening = this.#seconds.get("process");
    const isAfterListening = phase === "modules" && listening !== undefined;
    this.#record(phase, isAfterListening ? performance.now() / 1000 - listening : seconds);
  }

  recordReady(): void {
    this.#record("total", performance.now() / 1000);
  }

  /** In whole milliseconds by phase. */
  toLogField(): Readonly<Record<string, number>> {
    return Object.fromEntries(Array.from(this.#seconds, ([phase, seconds]) => [phase, Math.round(seconds * 1000)]));
  }
}
