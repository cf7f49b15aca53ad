/**
 * Queues that belong to others and hand out jobs. The queue keeps a job until a worker has completed it, and gives it to
 * another worker if the first one stays silent for too long.
 */
import type { TraceContext } from "../telemetry/trace-context.ts";
import type { JobResult } from "./job-result.ts";

/** Each method of a job ends the lease, except `renew`; a source ignores a lease that it no longer has. */
export interface LeasedJob {
  /** The same for all deliveries of a job. */
  readonly id: string;
  /** Bytes where the queue hands out bytes: they may be no UTF-8. */
  readonly body: string | Buffer;
  /**
   * When the message was added, as the queue says; the same for all deliveries. Present where the queue numbers its jobs:
   * the numbers start again when it is emptied.
   */
  readonly addedAt?: string;
  /** Number of times that the queue has handed out the job, this one included: at least 1. */
  readonly numDeliveries: number;
  /** Whose cached pictures it may use: the digest of its sender's API key. Default "", which no key has. */
  readonly tenant?: string;
  /** The trace of the sender, if the queue carries it beside the message. */
  readonly traceContext?: TraceContext | null;
  /** Aborted when the job is cancelled, or when another worker may have it. */
  readonly lost: AbortSignal;
  /**
   * Sends a chunk of the answer to the job's sender while it is computed; present where the queue carries chunks. Then the
   * message may ask for them with `stream: true`. Resolves when the next chunk may come; never rejects.
   */
  stream?(chunk: object): Promise<void>;
  /** Extends the lease to `leaseMs` from now. Rejects with LeaseLostError if another worker may have the job. */
  renew(): Promise<void>;
  /** Removes the job from the queue, and answers its sender where the queue carries answers. */
  complete(result: JobResult): Promise<void>;
  /** Moves the job to the queue's dead letters, because it can never succeed. */
  reject(result: JobResult): Promise<void>;
  /** Gives the job back; the queue hands it out again after `delayMs` or later. */
  release(delayMs: number): Promise<void>;
}

/** How an attempt at a job ended. */
export type JobOutcome = "completed" | "rejected" | "released" | "lost";

export interface JobSource {
  /** The queue's address without credentials, for logs. */
  readonly name: string;
  /** Time in milliseconds for which the queue keeps a job from other workers. Infinity if leases do not expire. */
  readonly leaseMs: number;
  /** Whether the queue itself carries results back to the sender of a job. */
  readonly answersSenders: boolean;
  /**
   * Waits some seconds for jobs, and resolves to at most `maxNumJobs` of them: to none if none came. When `signal` is
   * aborted, it resolves soon, and jobs that were already handed out are among the result. Rejects if the queue cannot be
   * reached or refuses; callers try again later.
   */
  take(maxNumJobs: number, signal: AbortSignal): Promise<readonly LeasedJob[]>;
  /** Frees connections. Call it when no job is leased. */
  close(): Promise<void>;
}

/** Another worker may have the job now. */
export class LeaseLostError extends Error {
  override readonly name = "LeaseLostError";

  constructor(jobId: string, cause?: unknown) {
    super(`The lease of the job ${jobId} was lost.`, { cause });
  }
}
