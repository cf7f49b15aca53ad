/**
 * Jobs from a BullMQ queue in Redis. Producers add them with BullMQ: `queue.add("chat", { messages: [...] })`. The return
 * value of a job is its result.
 */
import { UnrecoverableError, Worker } from "bullmq";
import type { Job, RedisQueueBackend } from "bullmq";
import type { Redis } from "ioredis";

import { randomUuid } from "../../../engine/index.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { TraceContext } from "../../telemetry/trace-context.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { toJsonText } from "./parsed-body.ts";
import { aborted, WaitingCall } from "./waiting-call.ts";

/** How long a call to Redis waits for a job. The process may wait for its end when it closes. */
const WAIT_SECONDS = 2;

export interface RedisJobSourceOptions {
  /** `redis://` or `rediss://` URL of a single server. */
  readonly url: string;
  readonly queue: string;
  /** BullMQ's prefix of keys. */
  readonly prefix: string;
  /** Lock of taken jobs in milliseconds. */
  readonly leaseMs: number;
  readonly waitSeconds?: number;
}

/** Rejected jobs are among BullMQ's failed jobs. A job that loses its worker is handed out again. */
export function createRedisJobSource(options: RedisJobSourceOptions): JobSource {
  const { url, queue, prefix, leaseMs, waitSeconds = WAIT_SECONDS } = options;
  const token = randomUuid();
  let worker: Worker | null = null;
  const first = new WaitingCall<Job<unknown> | undefined>(() => (worker ??= open()).getNextJob(token));

  function open(): Worker {
    const opened = new Worker(queue, null, {
      connection: { url, connectionName: "fovea-jobs", maxRetriesPerRequest: null },
      prefix,
      skipVersionCheck: true,
      lockDuration: leaseMs,
      stalledInterval: leaseMs,
      // The runner counts the deliveries itself.
      maxStalledCount: 1_000_000,
      drainDelay: waitSeconds,
    });
    // Errors of calls reach their callers.
    opened.on("error", () => {});
    void opened.startStalledCheckTimer().catch(() => {});
    return opened;
  }

  /**
   * By the clock of Redis. `moveToDelayed` of the job takes that of this machine: if it were an hour fast, all other
   * workers would leave the job for an hour.
   */
  async function delay(job: Job<unknown>, delayMs: number): Promise<void> {
    const backend = job["backend"] as RedisQueueBackend;
    const client = (await backend.client) as unknown as Pick<Redis, "time">;
    const [seconds, microseconds] = await client.time();
    const now = Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);
    await backend.moveToDelayed(job.id ?? "", now, delayMs, token, { skipAttempt: true });
  }

  function toJob(job: Job<unknown>): LeasedJob {
    const id = job.id ?? "";
    return {
      id,
      body: toJsonText(job.data),
      numDeliveries: Math.max(1, job.attemptsStarted),
      traceContext: contextOf(job),
      lost: new AbortController().signal,
      async renew() {
        const isRenewed = await job.extendLock(token, leaseMs).catch((error: unknown) => {
          if (isLost(error)) throw new LeaseLostError(id, error);
          throw error;
        });
        if (isRenewed === 0) throw new LeaseLostError(id);
      },
      async complete(result) {
        await job.moveToCompleted(JSON.parse(result.text), token, false);
      },
      async reject(result) {
        await job.moveToFailed(new UnrecoverableError(result.text), token, false);
      },
      async release(delayMs) {
        if (delayMs === 0) await job.moveToWait(token);
        else await delay(job, delayMs);
      },
    };
  }

  return {
    name: `${new URL(url).protocol}//${new URL(url).host}, queue ${queue}`,
    leaseMs,
    answersSenders: true,
    async take(maxNumJobs, signal) {
      const taken = await first.wait(signal);
      const jobs: LeasedJob[] = [];
      if (taken === aborted) return jobs;
      for (let job = taken; job !== undefined; job = await worker?.getNextJob(token, { block: false })) {
        jobs.push(toJob(job));
        if (jobs.length >= maxNumJobs || signal.aborted) break;
      }
      return jobs;
    },
    async close() {
      await (await first.rest())?.moveToWait(token);
      await worker?.close(true);
    },
  };
}

/** As BullMQ's own telemetry writes it: headers as JSON. */
function contextOf({ opts }: Job<unknown>): TraceContext | null {
  try {
    const headers = JSON.parse(opts.telemetry?.metadata ?? "null") as Readonly<Record<string, unknown>> | null;
    return headers && readTraceContext((name) => headers[name]);
  } catch {
    return null;
  }
}

/** BullMQ's codes -2 and -6: the lock is missing, or another worker has it. */
function isLost(error: unknown): boolean {
  return error instanceof Error && /lock|not in the active state/i.test(error.message);
}
