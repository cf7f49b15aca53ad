/** Batches that are made when they are first needed: their modules take longer to load than the port to open. */
import type { Batches } from "./batches.ts";
import type { BatchesDependencies } from "./create-batches.ts";

const RETRY_MS = 5_000;
/** For the state of what was under way to be kept; a store that does not answer must not hold the end of the process. */
const STOP_MS = 10_000;

/** Mutable; one per process. */
export class LazyBatches {
  readonly #dependencies: BatchesDependencies;
  #batches: Promise<Batches> | null = null;
  #isStopped = false;
  #retry: NodeJS.Timeout | undefined;

  constructor(dependencies: BatchesDependencies) {
    this.#dependencies = dependencies;
  }

  /** Rejects where they cannot be made; the next call tries again. */
  readonly load = async (): Promise<Batches> => {
    this.#batches ??= import("./create-batches.ts")
      .then(({ createBatches }) => createBatches(this.#dependencies))
      .catch((error: unknown) => {
        this.#batches = null;
        throw error;
      });
    return this.#batches;
  };

  /** Begins to work on what is unfinished, when the engine is ready; tries for as long as it has to. Never rejects. */
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

  /** Releases what is under way, and takes nothing up any more; idempotent. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    clearTimeout(this.#retry);
    if (this.#batches === null) return;
    const stopped = this.#batches.then((batches) => batches.stop());
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const deadline = setTimeout(resolve, STOP_MS);
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
