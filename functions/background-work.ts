/** Batches and jobs that run beside requests. They can end for a snapshot and begin again. */
import type { Batches } from "./batch/batches.ts";
import type { BatchesDependencies } from "./batch/create-batches.ts";
import { LazyBatches } from "./batch/lazy-batches.ts";
import type { JobsDependencies } from "./jobs/create-jobs.ts";
import type { Pushes } from "./jobs/create-pushes.ts";
import { LazyJobs } from "./jobs/lazy-jobs.ts";
import type { OpenJobSource } from "./jobs/sources/job-sources.ts";

export interface BackgroundWorkOptions {
  readonly dependencies: BatchesDependencies & JobsDependencies;
  readonly hasBatches: boolean;
  /** Null without a queue. */
  readonly openSource: OpenJobSource | null;
  /** Jobs that come in over HTTP; null if none do. */
  readonly pushes: Pushes | null;
}

interface Parts {
  readonly batches: LazyBatches | null;
  readonly jobs: readonly LazyJobs[];
}

/** Mutable; one per process. */
export class BackgroundWork {
  readonly #options: BackgroundWorkOptions;
  #parts: Parts;

  constructor(options: BackgroundWorkOptions) {
    this.#options = options;
    this.#parts = createParts(options);
  }

  /** Absent if batches are off. */
  get loadBatches(): (() => Promise<Batches>) | undefined {
    if (!this.#options.hasBatches) return undefined;
    return async () => {
      const { batches } = this.#parts;
      if (batches === null) throw new Error("Batches are off.");
      return batches.load();
    };
  }

  start(): void {
    const { batches, jobs } = this.#parts;
    void batches?.start();
    for (const one of jobs) void one.start();
  }

  /**
   * Releases batches and jobs. Resolves when the service's drain has ended those that have begun; jobs end some seconds
   * after `graceMs` at the latest. Idempotent.
   */
  async stop(graceMs: number): Promise<void> {
    const { batches, jobs } = this.#parts;
    this.#options.pushes?.source.stop();
    await Promise.all([batches?.stop(graceMs), ...jobs.map((one) => one.stop(graceMs))]);
  }

  /** Closes all connections. */
  async close(): Promise<void> {
    const { batches, jobs } = this.#parts;
    await batches?.close();
    await Promise.all(jobs.map((one) => one.close()));
  }

  /** Accepts work again after `close`. */
  restart(): void {
    this.#parts = createParts(this.#options);
    this.#options.pushes?.source.restart();
    this.start();
  }
}

function createParts({ dependencies, hasBatches, openSource, pushes }: BackgroundWorkOptions): Parts {
  const openers = [openSource, pushes && (async () => pushes.source)];
  return {
    batches: hasBatches ? new LazyBatches(dependencies) : null,
    jobs: openers.filter((open) => open !== null).map((open) => new LazyJobs(open, dependencies)),
  };
}
