/** Batches that are created on first use, because their modules take longer to load than the port to open. */
import type { Batches } from "./batches.ts";
import type { BatchesDependencies } from "./create-batches.ts";

const RETRY_MS = 5_000;
/** Time after the grace to store the state of running batches: an unresponsive store must not block the end. */
const STOP_MS = 10_000;

/** Mutable; one per process. */
export class LazyBatches {
  readonly #dependencies: BatchesDependencies;
  readonly #stopMs: number;
  #batches: Promise<Batches> | null = null;
  #isStopped = false;
  #retry: NodeJS.Timeout | undefined;

  constructor(dependencies: BatchesDependencies, stopMs = STOP_MS) {
    this.#dependencies = dependencies;
    this.#stopMs = stopMs;
  }

  /** Rejects if creation fails; the next call retries. */
  readonly load = async (): Promise<Batches> => {
    this.#batches ??= import("./create-batches.ts")
      .then(({ createBatches }) => createBatches(this.#dependencies))
      .catch((error: unknown) => {
        this.#batches = null;
        throw error;
      });
    return this.#batches;
  };

  /** Starts to work on unfinished batches once the engine is ready, and retries until that succeeds. Never rejects. */
  async start(): Promise<void> {
    if (this.#isStopped) return;
    try {
      const batches = await this.load();
      if (!this.#isStopped) await batches.start();
    } catch (error) {
      this.#dependencies.logger.error("Batches cannot be processed; retrying.", { error });
      this.#retry = setTimeout(() => void this.start(), RETRY_MS);
    }
  }

  /**
   * Releases running batches and starts nothing more. Lines in progress end with the service, at the latest after
   * `graceMs`. Idempotent.
   */
  async stop(graceMs = 0): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    clearTimeout(this.#retry);
    if (this.#batches === null) return;
    const stopped = this.#batches.then((batches) => batches.stop());
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const deadline = setTimeout(resolve, graceMs + this.#stopMs);
    await Promise.race([stopped, late]).catch((error: unknown) => {
      this.#dependencies.logger.warn("Batches were not released cleanly.", { error });
    });
    clearTimeout(deadline);
  }

  async close(): Promise<void> {
    await this.stop();
    await (await this.#batches?.catch(() => null))?.close();
  }
}
