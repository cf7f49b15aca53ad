/** Jobs that come in over HTTP: a queue in memory between the routes and the runner. */
import type { TraceContext } from "../../telemetry/trace-context.ts";
import type { JobResult } from "../job-result.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";

export interface PushedJob {
  /** The same for every delivery of the job. */
  readonly id: string;
  /** For `parseMessage`. */
  readonly body: string | Buffer;
  /** As the sender counts; at least 1. */
  readonly numDeliveries: number;
  /** See `LeasedJob.tenant`. */
  readonly tenant?: string;
  /** See `LeasedJob.traceContext`. */
  readonly traceContext?: TraceContext | null;
  /** See `LeasedJob.stream`. */
  readonly stream?: (chunk: object) => Promise<void>;
  /** Called when the engine has room for the job. */
  readonly onTaken?: () => void;
}

export type PushOutcome =
  | { readonly kind: "completed" | "rejected"; readonly result: JobResult }
  /** There is no result; the sender may send the job again after the delay. */
  | { readonly kind: "released"; readonly delayMs: number };

export interface PushedJobSource extends JobSource {
  /** Null if too many jobs, or too many bytes of them, wait. */
  push(job: PushedJob): Promise<PushOutcome> | null;
  /** Whether no more jobs are taken, because the service is shutting down. */
  readonly isStopped: boolean;
  /** Takes jobs again after `stop`. */
  restart(): void;
  /** Releases the jobs that wait, and those that are pushed from now on. */
  stop(): void;
  /** Ends a job that was pushed with this id: its outcome is `released`. */
  cancel(id: string): void;
}

export interface PushedJobSourceOptions {
  readonly maxNumWaiting: number;
  readonly maxWaitingBytes: number;
}

interface Entry {
  readonly job: PushedJob;
  readonly lost: AbortController;
  readonly outcome: PromiseWithResolvers<PushOutcome>;
  readonly numBytes: number;
}

/** How long a call of `take` waits. */
const WAIT_MS = 20_000;

/** Leases do not expire. The sender is told that a job was released, and decides whether to send it again. */
export function createPushedJobSource({ maxNumWaiting, maxWaitingBytes }: PushedJobSourceOptions): PushedJobSource {
  const waiting: Entry[] = [];
  const entries = new Map<string, Entry>();
  let numWaitingBytes = 0;
  let isStopped = false;
  let arrived = Promise.withResolvers<void>();

  /** Whether this call has ended the job. */
  function end(entry: Entry, outcome: PushOutcome): boolean {
    if (entries.get(entry.job.id) !== entry) return false;
    entries.delete(entry.job.id);
    const index = waiting.indexOf(entry);
    if (index !== -1) {
      waiting.splice(index, 1);
      numWaitingBytes -= entry.numBytes;
    }
    entry.outcome.resolve(outcome);
    return true;
  }

  function stop(): void {
    isStopped = true;
    for (let entry = waiting[0]; entry !== undefined; entry = waiting[0]) end(entry, { kind: "released", delayMs: 0 });
    arrived.resolve();
  }

  function toLeased(entry: Entry): LeasedJob {
    const { job, lost } = entry;
    return {
      id: job.id,
      body: job.body,
      numDeliveries: job.numDeliveries,
      lost: lost.signal,
      ...(job.tenant !== undefined && { tenant: job.tenant }),
      traceContext: job.traceContext ?? null,
      ...(job.stream && { stream: job.stream }),
      async renew() {},
      async complete(result) {
        end(entry, { kind: "completed", result });
      },
      async reject(result) {
        end(entry, { kind: "rejected", result });
      },
      async release(delayMs) {
        end(entry, { kind: "released", delayMs });
      },
    };
  }

  return {
    name: "HTTP",
    leaseMs: Number.POSITIVE_INFINITY,
    answersSenders: true,
    push(job) {
      const known = entries.get(job.id);
      if (known !== undefined) return known.outcome.promise;
      if (isStopped) return Promise.resolve({ kind: "released", delayMs: 0 });
      const numBytes = Buffer.byteLength(job.body);
      if (waiting.length >= maxNumWaiting || numWaitingBytes + numBytes > maxWaitingBytes) return null;
      const entry: Entry = { job, lost: new AbortController(), outcome: Promise.withResolvers(), numBytes };
      entries.set(job.id, entry);
      waiting.push(entry);
      numWaitingBytes += numBytes;
      arrived.resolve();
      return entry.outcome.promise;
    },
    cancel(id) {
      const entry = entries.get(id);
      if (entry !== undefined && end(entry, { kind: "released", delayMs: 0 })) entry.lost.abort();
    },
    get isStopped() {
      return isStopped;
    },
    stop,
    restart() {
      isStopped = false;
    },
    async take(maxNumJobs, signal) {
      if (waiting.length === 0 && !signal.aborted) {
        arrived = Promise.withResolvers();
        const timer = setTimeout(arrived.resolve, WAIT_MS);
        signal.addEventListener("abort", stop, { once: true });
        await arrived.promise;
        signal.removeEventListener("abort", stop);
        clearTimeout(timer);
      }
      if (signal.aborted) stop();
      const taken = waiting.splice(0, maxNumJobs);
      for (const { job, numBytes } of taken) {
        numWaitingBytes -= numBytes;
        job.onTaken?.();
      }
      return taken.map(toLeased);
    },
    async close() {
      stop();
      for (const entry of entries.values()) end(entry, { kind: "released", delayMs: 0 });
    },
  };
}
