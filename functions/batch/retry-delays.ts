/** Delays before failed jobs are retried. */

/** Jobs that are remembered. There are never more unfinished ones at once. */
const MAX_JOBS = 1000;

export interface RetryDelaysOptions {
  /** Delay after the first failure of a job. It doubles with each further failure. */
  readonly firstMs: number;
  readonly mostMs: number;
}

/** Mutable. */
export class RetryDelays {
  readonly #options: RetryDelaysOptions;
  readonly #nextMs = new Map<string, number>();

  constructor(options: RetryDelaysOptions) {
    this.#options = options;
  }

  afterFailure(jobId: string): number {
    const { firstMs, mostMs } = this.#options;
    const delayMs = this.#nextMs.get(jobId) ?? firstMs;
    if (this.#nextMs.size >= MAX_JOBS) this.#nextMs.clear();
    this.#nextMs.set(jobId, Math.min(2 * delayMs, mostMs));
    return delayMs;
  }

  /** Call it when an attempt of the job did not fail. */
  reset(jobId: string): void {
    this.#nextMs.delete(jobId);
  }
}
