/** The runner of jobs, created when the engine is ready: the modules of a queue take longer to load than the port. */
import type { JobsDependencies } from "./create-jobs.ts";
import type { JobRunner } from "./job-runner.ts";
import type { OpenJobSource } from "./sources/job-sources.ts";

const RETRY_MS = 5_000;

/** Mutable; one per process. */
export class LazyJobs {
  readonly #openSource: OpenJobSource;
  readonly #dependencies: JobsDependencies;
  #runner: Promise<JobRunner> | null = null;
  #isReady = false;
  #isStopped = false;
  #retry: NodeJS.Timeout | undefined;
  /** Of the last failure to start; null before one. */
  #reason: string | null = null;

  constructor(openSource: OpenJobSource, dependencies: JobsDependencies) {
    this.#openSource = openSource;
    this.#dependencies = dependencies;
  }

  /** Starts to take jobs once the engine is ready, and retries until that succeeds. Never rejects. */
  async start(): Promise<void> {
    if (this.#isStopped) return;
    try {
      this.#runner = import("./create-jobs.ts").then(({ createJobs }) =>
        createJobs(this.#openSource, this.#dependencies),
      );
      const runner = await this.#runner;
      this.#isReady = true;
      if (!this.#isStopped) runner.start();
    } catch (error) {
      this.#runner = null;
      if (this.#isStopped) return;
      const reason = error instanceof Error ? error.message : String(error);
      if (reason !== this.#reason) this.#dependencies.logger.error("Jobs cannot be taken; retrying.", { error });
      this.#reason = reason;
      this.#retry = setTimeout(() => void this.start(), RETRY_MS);
    }
  }

  /**
   * Takes no more jobs, and resolves when all are returned to the queue, at the latest some seconds after `graceMs`.
   * Idempotent. Never rejects.
   */
  async stop(graceMs = 0): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#retry);
    if (this.#isReady) await (await this.#runner)?.stop(graceMs);
  }

  async close(): Promise<void> {
    await this.stop();
    // A queue that is still being opened has handed out no jobs, and may never answer.
    if (this.#isReady) await (await this.#runner)?.close();
    else void this.#runner?.then((runner) => runner.close()).catch(() => {});
  }
}
