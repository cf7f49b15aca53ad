/**
 * The job queue of one process. Of several processes that share a lock, only the holder works; another one takes over
 * after it.
 */
import type { Logger } from "../logger.ts";
import type { FolderLock } from "../storage/folder-lock.ts";
import type { JobQueue, JobWork } from "./job-queue.ts";
import { RetryDelays } from "./retry-delays.ts";
import type { RetryDelaysOptions } from "./retry-delays.ts";

export interface LocalJobQueueOptions {
  /** Maximum number of concurrent jobs. */
  readonly maxNumRunning: number;
  /** Delay before a job is taken again: for failed jobs, and `firstMs` for jobs released while the queue is open. */
  readonly retry: RetryDelaysOptions;
  /** Null if another process has the lock. Called when there is a job. */
  readonly tryLock: () => Promise<FolderLock | null>;
  readonly logger: Logger;
}

export function createLocalJobQueue(options: LocalJobQueueOptions): JobQueue {
  return new LocalJobQueue(options);
}

/** Mutable. */
class LocalJobQueue implements JobQueue {
  readonly #options: LocalJobQueueOptions;
  readonly #waiting = new Set<string>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #delays: RetryDelays;
  /** For jobs that wait for a retry. */
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #closing = new AbortController();
  #work: JobWork | null = null;
  #lock: FolderLock | null = null;
  #locking: Promise<void> | null = null;

  constructor(options: LocalJobQueueOptions) {
    this.#options = options;
    this.#delays = new RetryDelays(options.retry);
  }

  async add(jobId: string): Promise<void> {
    if (this.#closing.signal.aborted) return;
    if (!this.#running.has(jobId) && !this.#timers.has(jobId)) this.#waiting.add(jobId);
    await this.#acquireLock();
    this.#takeJobs();
  }

  start(work: JobWork): void {
    this.#work = work;
    this.#takeJobs();
  }

  async tryTake(jobId: string): Promise<boolean> {
    if (this.#lock === null) return false;
    return this.#waiting.delete(jobId);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    await Promise.all(this.#running.values());
    this.#lock?.release();
    this.#lock = null;
  }

  /** One attempt at a time. If it fails, the next added job starts another. */
  async #acquireLock(): Promise<void> {
    if (this.#lock !== null) return;
    this.#locking ??= this.#tryLock().finally(() => (this.#locking = null));
    await this.#locking;
  }

  async #tryLock(): Promise<void> {
    const lock = await this.#options.tryLock();
    if (this.#closing.signal.aborted) lock?.release();
    else this.#lock = lock;
  }

  #takeJobs(): void {
    if (this.#work === null || this.#lock === null) return;
    for (const jobId of this.#waiting) {
      if (this.#running.size >= this.#options.maxNumRunning) return;
      this.#waiting.delete(jobId);
      this.#running.set(jobId, this.#run(jobId, this.#work));
    }
  }

  /** Never rejects. */
  async #run(jobId: string, work: JobWork): Promise<void> {
    const { signal } = this.#closing;
    let delayMs: number | null = null;
    try {
      if ((await work(jobId, signal)) === "released") delayMs = this.#options.retry.firstMs;
      this.#delays.reset(jobId);
    } catch (error) {
      delayMs = this.#delays.afterFailure(jobId);
      this.#options.logger.error("A job failed; it will be retried.", { jobId, afterMs: delayMs, error });
    }
    this.#running.delete(jobId);
    if (signal.aborted) return;
    if (delayMs !== null)
      this.#timers.set(
        jobId,
        setTimeout(() => this.#retry(jobId), delayMs),
      );
    this.#takeJobs();
  }

  #retry(jobId: string): void {
    this.#timers.delete(jobId);
    this.#waiting.add(jobId);
    this.#takeJobs();
  }
}
