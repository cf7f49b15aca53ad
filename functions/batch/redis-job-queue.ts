/** The job queue that replicas share over Redis; the only file that knows BullMQ. */
import { DelayedError, Queue, WaitingError, Worker } from "bullmq";
import type { Job } from "bullmq";

import type { Logger } from "../logger.ts";
import type { JobQueue, JobWork } from "./job-queue.ts";
import { RetryDelays } from "./retry-delays.ts";
import type { RetryDelaysOptions } from "./retry-delays.ts";

/** A lock is renewed at half of its time, so a replica that is killed loses its jobs after one to two of these. */
const DEFAULT_LOCK_MS = 10_000;
/** For Redis to take a job. Jobs are added again later. */
const ADD_TIMEOUT_MS = 2_000;
/** No bound: batches count themselves how often they ended a process. */
const MAX_STALLED_COUNT = 1_000_000;

export interface RedisJobQueueOptions {
  /** `redis://` or `rediss://`, of a single server. */
  readonly url: string;
  /** In front of all keys. */
  readonly keyPrefix: string;
  /** Queues of one name are one. */
  readonly name: string;
  /** Most jobs under way together in this process. */
  readonly maxNumRunning: number;
  /** Until a job is taken again that failed, or that was released while the queue is open: that one after `firstMs`. */
  readonly retry: RetryDelaysOptions;
  readonly lockMs?: number;
  readonly logger: Logger;
}

/** Connects in the background. A Redis that is out of reach is logged once, until it is back. */
export function createRedisJobQueue(options: RedisJobQueueOptions): JobQueue {
  return new RedisJobQueue(options);
}

/** Mutable. */
class RedisJobQueue implements JobQueue {
  readonly #options: RedisJobQueueOptions;
  readonly #queue: Queue;
  #worker: Worker | null = null;
  readonly #closing = new AbortController();
  /** Attempts, without what BullMQ does after them. Each resolves to the delay of the next, null where none follows. */
  readonly #underWay = new Set<Promise<number | null>>();
  readonly #delays: RetryDelays;
  #isInTrouble = false;

  constructor(options: RedisJobQueueOptions) {
    this.#options = options;
    this.#delays = new RetryDelays(options.retry);
    const connection = { url: options.url, enableOfflineQueue: false, connectionName: "fovea-batches" };
    // The check would ask for INFO, which users of few rights may not.
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
    const { url, name, keyPrefix, maxNumRunning, lockMs = DEFAULT_LOCK_MS } = this.#options;
    const worker = new Worker(name, (job, token, signal) => this.#run(job, token ?? "", signal, work), {
      connection: { url, connectionName: "fovea-batches", maxRetriesPerRequest: null },
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
      // Another works on it, or Redis cannot tell.
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
    // A Redis that is away cannot take jobs back: their locks run out. Its connection ends when it is there again.
    await this.#worker?.close(true);
    void this.#queue.disconnect().catch(() => {});
  }

  /** Asks Redis: a connection that was lost just now has caused no trouble yet, and BullMQ would wait for it for ever. */
  async #isInReach(): Promise<boolean> {
    if (this.#isInTrouble) return false;
    return withinTime(this.#queue.isPaused()).then(
      () => true,
      () => false,
    );
  }

  /** The errors it throws are BullMQ's way of giving a job back. */
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
      await job.moveToDelayed(Date.now() + delayMs, token);
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
