/** Who works on which job when. */

/**
 * `finished`: there is nothing left to do. `released`: what is left is for whoever takes the job next. A rejection is
 * told in the log, and the job is taken again after a while.
 */
export type JobOutcome = "finished" | "released";

/** @param signal Aborted when the job is to be released: the queue closes, or another has been given the job. */
export type JobWork = (jobId: string, signal: AbortSignal) => Promise<JobOutcome>;

/** Nobody but one worker of all that share a queue has a job at a time. What has to be done is kept elsewhere. */
export interface JobQueue {
  /** Tells of a job. One that is known already is left as it is, so all there are may be told of again at any time. */
  add(jobId: string): Promise<void>;
  /** Begins to take jobs, the first told of first; called once. */
  start(work: JobWork): void;
  /** Whether the job is the caller's now: it waited for its turn, which it will not get any more. */
  tryTake(jobId: string): Promise<boolean>;
  /** Takes no more jobs, and resolves when those under way are released. */
  close(): Promise<void>;
}
