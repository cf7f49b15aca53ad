/**
 * Prepares the process for a snapshot of its memory, and takes up its work afterwards. A restored process has no sockets,
 * other processes may be restored from the same snapshot, and its leases have passed to other workers.
 */
import type { Engine } from "../engine/index.ts";
import type { BackgroundWork } from "./background-work.ts";
import type { Logger } from "./logger.ts";
import type { Service } from "./service.ts";
import type { Telemetry } from "./telemetry/telemetry.ts";

export interface SnapshotParts {
  readonly service: Service;
  readonly engine: Engine;
  readonly background: BackgroundWork;
  readonly telemetry: Telemetry | null;
  /** Closes the connections of clients; the next use opens new ones. */
  readonly disconnectClients: () => Promise<void>;
  /** Closes connections of callers that have no request in progress. */
  readonly closeIdleConnections: () => void;
  /** Time for requests in progress. */
  readonly graceMs: number;
  readonly logger: Logger;
}

export interface QuiesceReport {
  /** Whether all requests ended by themselves. */
  readonly isClean: boolean;
  readonly seconds: number;
}

/** Mutable; one per process. Calls take effect one after the other. */
export class Snapshots {
  readonly #parts: SnapshotParts;
  #isQuiesced = false;
  #last: Promise<unknown> = Promise.resolve();

  constructor(parts: SnapshotParts) {
    this.#parts = parts;
  }

  /**
   * Rejects new requests as while the model loads, waits for those in progress, releases batches and jobs, and closes
   * every connection. The model stays in memory. Idempotent.
   *
   * @throws EngineError `not_ready`, `closed` or that of a failed engine: there is nothing to take a snapshot of.
   */
  quiesce(): Promise<QuiesceReport> {
    return this.#inTurn(async () => {
      const { service, engine, background, telemetry, graceMs, logger } = this.#parts;
      const start = performance.now();
      const report = (isClean: boolean): QuiesceReport => ({ isClean, seconds: (performance.now() - start) / 1000 });
      if (this.#isQuiesced) return report(true);
      service.requireReady();
      this.#isQuiesced = true;
      const [isClean] = await Promise.all([service.quiesce(graceMs), background.stop(graceMs)]);
      await background.close();
      await Promise.all([engine.disconnect(), this.#parts.disconnectClients(), telemetry?.suspend()]);
      this.#parts.closeIdleConnections();
      logger.info("Quiesced; a snapshot can be taken.", { ...report(isClean) });
      return report(isClean);
    });
  }

  /** Opens everything again and accepts requests. Does nothing in a process that is not quiesced. */
  resume(): Promise<void> {
    return this.#inTurn(async () => {
      const { service, engine, background, telemetry, logger } = this.#parts;
      if (!this.#isQuiesced) return;
      // Before anything draws an id: the engine makes them different from those of other restored processes.
      await engine.reconnect();
      await telemetry?.resume();
      this.#isQuiesced = false;
      service.resume();
      if (service.state === "ready") background.restart();
      logger.info("Resumed.");
    });
  }

  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => {});
    return result;
  }
}
