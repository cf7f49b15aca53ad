/**
 * Jobs from a BullMQ queue in Redis. Producers add them with BullMQ: `queue.add("chat", { messages: [...] })`. The return
 * value of a job is its result.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { UnrecoverableError, Worker } from "bullmq";
import type { Job, JobJson } from "bullmq";

import { randomUuid } from "../../../engine/index.ts";
import { delayJob } from "../../batch/delay-job.ts";
import type { Logger } from "../../logger.ts";
import { isOfReplica, MAX_SILENCE_MS } from "../../redis/redis-failover.ts";
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
  readonly logger: Logger;
  readonly waitSeconds?: number;
}

/** Rejected jobs are among BullMQ's failed jobs. A job that loses its worker is handed out again. */
export function createRedisJobSource(options: RedisJobSourceOptions): JobSource {
  const { url, queue, prefix, leaseMs, logger, waitSeconds = WAIT_SECONDS } = options;
  const name = `${new URL(url).protocol}//${new URL(url).host}, queue ${queue}`;
  const token = randomUuid();
  let worker: UnparsedWorker | null = null;
  let isUnreachable = false;
  const first = new WaitingCall<Job<unknown> | undefined>(async () => {
    worker ??= open();
    // A call to a queue that has reached its rate limit ends at once, without asking Redis.
    const limitedMs = worker.rateLimitedMs;
    if (limitedMs > 0) await sleep(Math.min(limitedMs, waitSeconds * 1000));
    return worker.getNextJob(token);
  });

  function open(): UnparsedWorker {
    const opened = new UnparsedWorker(queue, null, {
      connection: {
        url,
        socketTimeout: MAX_SILENCE_MS,
        reconnectOnError: isOfReplica,
        connectionName: "fovea-jobs",
        maxRetriesPerRequest: null,
      },
      prefix,
      skipVersionCheck: true,
      lockDuration: leaseMs,
      stalledInterval: leaseMs,
      // The runner counts the deliveries itself.
      maxStalledCount: 1_000_000,
      drainDelay: waitSeconds,
    });
    // BullMQ's calls wait for a connection instead of failing, so only this event says why there is none.
    opened.on("error", (error) => {
      if (isUnreachable) return;
      isUnreachable = true;
      logger.warn("The Redis server of the queue of jobs cannot be used; waiting for it.", { source: name, error });
    });
    void opened.startStalledCheckTimer().catch(() => {});
    return opened;
  }

  function toJob(job: Job<unknown>): LeasedJob {
    const id = job.id ?? "";
    return {
      id,
      body: worker?.textOf(job) ?? "",
      // Ids of producers are no numbers.
      ...(/^\d+$/.test(id) && { addedAt: String(job.timestamp) }),
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
        else await delayJob(job, delayMs, token);
      },
    };
  }

  return {
    name,
    leaseMs,
    answersSenders: true,
    async take(maxNumJobs, signal) {
      const taken = await first.wait(signal);
      const jobs: LeasedJob[] = [];
      if (taken === aborted) return jobs;
      if (isUnreachable) logger.info("The Redis server of the queue of jobs can be used again.", { source: name });
      isUnreachable = false;
      for (let job = taken; job !== undefined;) {
        jobs.push(toJob(job));
        if (jobs.length >= maxNumJobs || signal.aborted) break;
        // The jobs so far count: their leases have begun.
        job = await worker?.getNextJob(token, { block: false }).catch(() => undefined);
      }
      return jobs;
    },
    async close() {
      await (await first.rest())?.moveToWait(token);
      await worker?.close(true);
    },
  };
}

/**
 * Leaves the data of jobs as text. The message is parsed once, within limits, and data that is no JSON is refused like
 * that of any other queue: producers in Python write NaN. Mutable.
 */
class UnparsedWorker extends Worker<unknown> {
  readonly #texts = new WeakMap<Job<unknown>, string>();

  /** Time until the queue's rate limit allows another job; 0 or less if it does now. */
  get rateLimitedMs(): number {
    return this["limitUntil"] - Date.now();
  }

  textOf(job: Job<unknown>): string {
    return this.#texts.get(job) ?? toJsonText(job.data);
  }

  protected override createJob(json: JobJson, jobId: string): Job<unknown> {
    // The job after this one in a job scheduler gets the same data.
    if (json.repeatJobKey) return super.createJob(json, jobId);
    const job = super.createJob({ ...json, data: "" }, jobId);
    this.#texts.set(job, json.data || "{}");
    return job;
  }
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
