/** Assigns jobs to workers. */

/**
 * `finished`: nothing is left to do. `released`: the rest is for the next worker of the job. A rejection is logged, and
 * the job is retried after a while.
 */
export type JobOutcome = "finished" | "released";

/** @param signal Aborted when the job must be released: the queue closes, or another worker has the job. */
export type JobWork = (jobId: string, signal: AbortSignal) => Promise<JobOutcome>;

/** At any time, only one of all workers that share a queue has a job. The content of jobs is kept elsewhere. */
export interface JobQueue {
  /** Adds a job. A known job is left unchanged, so all jobs can be added again at any time. */
  add(jobId: string): Promise<void>;
  /** Starts to take jobs, in the order in which they were added; called once. */
  start(work: JobWork): void;
  /** Returns whether the caller now owns the job: it was waiting, and no worker will get it any more. */
  tryTake(jobId: string): Promise<boolean>;
  /** Takes no more jobs, and resolves when running ones are released. */
  close(): Promise<void>;
}
