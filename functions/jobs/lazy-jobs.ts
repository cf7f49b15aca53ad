/** The runner of jobs, created when the engine is ready: the modules of a queue take longer to load than the port. */
import { ConfigError } from "../settings/setting.ts";
import type { JobsDependencies } from "./create-jobs.ts";
import type { JobRunner } from "./job-runner.ts";
import type { JobSource } from "./job-source.ts";

const RETRY_MS = 5_000;

/** Mutable; one per process. */
export class LazyJobs {
  readonly #address: string | JobSource;
  readonly #dependencies: JobsDependencies;
  #runner: Promise<JobRunner> | null = null;
  #isStopped = false;
  #retry: NodeJS.Timeout | undefined;

  constructor(address: string | JobSource, dependencies: JobsDependencies) {
    this.#address = address;
    this.#dependencies = dependencies;
  }

  /** Call it when the engine is ready. Rejects with ConfigError for an address that can never work. */
  async start(): Promise<void> {
    if (this.#isStopped) return;
    try {
      this.#runner = import("./create-jobs.ts").then(({ createJobs }) => createJobs(this.#address, this.#dependencies));
      const runner = await this.#runner;
      if (!this.#isStopped) runner.start();
    } catch (error) {
      this.#runner = null;
      if (error instanceof ConfigError) throw error;
      this.#dependencies.logger.error("Jobs cannot be taken; retrying.", { error });
      this.#retry = setTimeout(() => void this.start().catch(() => {}), RETRY_MS);
    }
  }

  /** Takes no more jobs, and resolves when all are returned to the queue. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#retry);
    await (await this.#runner)?.stop();
  }

  async close(): Promise<void> {
    await this.stop();
    await (await this.#runner)?.close();
  }
}
