/** The job queue that replicas share over Redis. Only this file imports BullMQ. */
import { DelayedError, Queue, WaitingError, Worker } from "bullmq";
import type { Job } from "bullmq";

import type { Logger } from "../logger.ts";
import { isOfReplica, MAX_SILENCE_MS } from "../redis/redis-failover.ts";
import { delayJob } from "./delay-job.ts";
import type { JobQueue, JobWork } from "./job-queue.ts";
import { RetryDelays } from "./retry-delays.ts";
import type { RetryDelaysOptions } from "./retry-delays.ts";

/** A lock is renewed at half of this time, so a killed replica loses its jobs after one to two times as long. */
const DEFAULT_LOCK_MS = 10_000;
/** Time for Redis to accept a job. Jobs are added again later. */
const ADD_TIMEOUT_MS = 2_000;
/** Unlimited: batches count themselves how often they ended a process. */
const MAX_STALLED_COUNT = 1_000_000;

export interface RedisJobQueueOptions {
  /** `redis://` or `rediss://` URL of a single server. */
  readonly url: string;
  /** Prefix of all keys. */
  readonly keyPrefix: string;
  /** Queues with the same name are one queue. */
  readonly name: string;
  /** Maximum number of concurrent jobs in this process. */
  readonly maxNumRunning: number;
  /** Delay before a job is taken again: for failed jobs, and `firstMs` for jobs released while the queue is open. */
  readonly retry: RetryDelaysOptions;
  readonly lockMs?: number;
  /** A connection that owes an answer for so long is replaced. Default `MAX_SILENCE_MS`. */
  readonly maxSilenceMs?: number;
  readonly logger: Logger;
}

/** Connects in the background. An unreachable Redis is logged once, until it recovers. */
export function createRedisJobQueue(options: RedisJobQueueOptions): JobQueue {
  return new RedisJobQueue(options);
}

/** Mutable. */
class RedisJobQueue implements JobQueue {
  readonly #options: RedisJobQueueOptions;
  readonly #queue: Queue;
  #worker: Worker | null = null;
  readonly #closing = new AbortController();
  /**
   * Running attempts, without BullMQ's work after them. Each resolves to the delay of the next attempt, or null if
   * there is none.
   */
  readonly #underWay = new Set<Promise<number | null>>();
  readonly #delays: RetryDelays;
  #isInTrouble = false;

  constructor(options: RedisJobQueueOptions) {
    this.#options = options;
    this.#delays = new RetryDelays(options.retry);
    const connection = {
      url: options.url,
      socketTimeout: options.maxSilenceMs ?? MAX_SILENCE_MS,
      enableOfflineQueue: false,
      reconnectOnError: isOfReplica,
      connectionName: "fovea-batches",
    };
    // The check would call INFO, which needs more permissions.
    this.#queue = new Queue(options.name, { connection, prefix: options.keyPrefix, skipVersionCheck: true });
    this.#queue.on("error", this.#warnOnce);
  }

  async add(jobId: string): Promise<void> {
    const jobOptions = { jobId, removeOnComplete: true, removeOnFail: true };
    await withinTime(this.#queue.add("batch", null, jobOptions));
    if (this.#isInTrouble) this.#options.logger.info("The queue of batches is reachable again.");
    this.#isInTrouble = false;
  }

  start(work: JobWork): void {
    const { url, name, keyPrefix, maxNumRunning, lockMs = DEFAULT_LOCK_MS, maxSilenceMs } = this.#options;
    const worker = new Worker(name, (job, token, signal) => this.#run(job, token ?? "", signal, work), {
      connection: {
        url,
        socketTimeout: maxSilenceMs ?? MAX_SILENCE_MS,
        reconnectOnError: isOfReplica,
        connectionName: "fovea-batches",
        maxRetriesPerRequest: null,
      },
      prefix: keyPrefix,
      skipVersionCheck: true,
      concurrency: maxNumRunning,
      lockDuration: lockMs,
      stalledInterval: lockMs,
      maxStalledCount: MAX_STALLED_COUNT,
    });
    worker.on("error", this.#warnOnce);
    worker.on("lockRenewalFailed", (jobIds) => {
      for (const jobId of jobIds) worker.cancelJob(jobId, "The lock was lost.");
    });
    this.#worker = worker;
  }

  async tryTake(jobId: string): Promise<boolean> {
    try {
      const job = await withinTime(this.#queue.getJob(jobId));
      if (job === undefined) return false;
      await withinTime(job.remove());
      return true;
    } catch {
      // Another worker has it, or Redis cannot answer.
      return false;
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#underWay);
    if (await this.#isInReach()) {
      await this.#worker?.close();
      return this.#queue.close();
    }
    // An unreachable Redis cannot take jobs back: their locks expire. The connection ends when Redis is reachable
    // again.
    await this.#worker?.close(true);
    void this.#queue.disconnect().catch(() => {});
  }

  /** Asks Redis: a connection that has just been lost has caused no error yet, and BullMQ would wait for it forever. */
  async #isInReach(): Promise<boolean> {
    if (this.#isInTrouble) return false;
    return withinTime(this.#queue.isPaused()).then(
      () => true,
      () => false,
    );
  }

  /** The errors that it throws are BullMQ's way of returning a job. */
  async #run(job: Job, token: string, lost: AbortSignal | undefined, work: JobWork): Promise<void> {
    const jobId = job.id ?? "";
    const stop = new AbortController();
    const onStop = (): void => stop.abort();
    const signals = [this.#closing.signal, ...(lost === undefined ? [] : [lost])];
    for (const signal of signals) {
      signal.addEventListener("abort", onStop);
      if (signal.aborted) onStop();
    }
    const working = this.#attempt(jobId, stop.signal, work);
    this.#underWay.add(working);
    try {
      const delayMs = await working;
      if (delayMs === null) return;
      if (lost?.aborted) throw new Error("The lock of the job was lost.");
      if (this.#closing.signal.aborted) {
        await job.moveToWait(token);
        throw new WaitingError();
      }
      await delayJob(job, delayMs, token);
      throw new DelayedError();
    } finally {
      this.#underWay.delete(working);
      for (const signal of signals) signal.removeEventListener("abort", onStop);
    }
  }

  /** Never rejects. */
  async #attempt(jobId: string, signal: AbortSignal, work: JobWork): Promise<number | null> {
    try {
      const outcome = await work(jobId, signal);
      this.#delays.reset(jobId);
      return outcome === "finished" ? null : this.#options.retry.firstMs;
    } catch (error) {
      const delayMs = this.#delays.afterFailure(jobId);
      this.#options.logger.error("A job failed; it will be retried.", { jobId, afterMs: delayMs, error });
      return delayMs;
    }
  }

  readonly #warnOnce = (error: Error): void => {
    if (this.#isInTrouble || this.#closing.signal.aborted) return;
    this.#isInTrouble = true;
    this.#options.logger.warn("The queue of batches does not work; batches wait until it does.", { error });
  };
}

async function withinTime<Value>(work: Promise<Value>): Promise<Value> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => reject(new Error(`Redis did not answer within ${ADD_TIMEOUT_MS} ms.`)),
    ADD_TIMEOUT_MS,
  );
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
