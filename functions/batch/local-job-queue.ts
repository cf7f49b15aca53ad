/** The job queue of one process; of several that share a lock only the holder works, and another when that one ends. */
import type { Logger } from "../logger.ts";
import type { FolderLock } from "../storage/folder-lock.ts";
import type { JobQueue, JobWork } from "./job-queue.ts";

export interface LocalJobQueueOptions {
  /** Jobs under way together, at most. */
  readonly maxNumRunning: number;
  /** Until a job that failed, or was released while the queue is open, is taken again. */
  readonly retryMs: number;
  /** Null where another process has it. Asked for when there is a job. */
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
  /** Of jobs that wait to be tried again. */
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #closing = new AbortController();
  #work: JobWork | null = null;
  #lock: FolderLock | null = null;
  #locking: Promise<void> | null = null;

  constructor(options: LocalJobQueueOptions) {
    this.#options = options;
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

  /** One attempt at a time; where it fails, whoever tells of jobs again makes the next. */
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
    const outcome = await work(jobId, signal).catch((error: unknown) => {
      this.#options.logger.error("A job failed; it is tried again.", { jobId, error });
      return "released" as const;
    });
    this.#running.delete(jobId);
    if (signal.aborted) return;
    if (outcome === "released")
      this.#timers.set(
        jobId,
        setTimeout(() => this.#retry(jobId), this.#options.retryMs),
      );
    this.#takeJobs();
  }

  #retry(jobId: string): void {
    this.#timers.delete(jobId);
    this.#waiting.add(jobId);
    this.#takeJobs();
  }
}
