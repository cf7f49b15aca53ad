/** Places that results of jobs go to, beside the answer that a queue itself may carry. */
import type { JobKey } from "./job-key.ts";
import type { JobResult } from "./job-result.ts";

export interface ResultSink {
  /** The address without credentials, for logs. */
  readonly name: string;
  /**
   * The result that an earlier delivery of the job stored; null if there is none. Absent where results cannot be read
   * back. Rejects if the place cannot be reached.
   */
  find?(key: JobKey, signal: AbortSignal): Promise<JobResult | null>;
  /**
   * Delivers a result. Resolves to the result that the place has now: an earlier one of the job if the first one stays.
   * Tries several times; rejects with an error for logs when it gives up or `signal` is aborted, and with
   * ResultRefusedError if the place works and does not take this result. The result of a job may be delivered again, with
   * the same id.
   */
  put(result: JobResult, key: JobKey, signal: AbortSignal): Promise<JobResult>;
  close(): Promise<void>;
}

/** The place works, but does not take this result. */
export class ResultRefusedError extends Error {
  override readonly name = "ResultRefusedError";
}
