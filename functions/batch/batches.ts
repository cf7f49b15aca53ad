/**
 * The operations behind the routes of files and batches: uploads, queued batches, and their processing next to other
 * requests.
 */
import { setTimeout as sleep } from "node:timers/promises";

import { randomUuid } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import type { BatchUrl } from "./batch-line.ts";
import { isFinal } from "./batch-record.ts";
import type { BatchObject } from "./batch-record.ts";
import { BatchRecords } from "./batch-records.ts";
import { runBatchJob } from "./batch-runner.ts";
import type { BatchRunnerOptions } from "./batch-runner.ts";
import { DamagedRecordError, DamageLog } from "./damaged-records.ts";
import { createdAtMs, createId, isId } from "./ids.ts";
import type { JobOutcome, JobQueue } from "./job-queue.ts";
import { RetentionSweep } from "./retention-sweep.ts";
import { StoreQuota } from "./store-quota.ts";
import { StoredFiles } from "./stored-files.ts";
import type { Page, PageOptions } from "./tenant-records.ts";
import { startTicker } from "./ticker.ts";
import type { Ticker } from "./ticker.ts";

/** Maximum number of waiting and running batches. All are listed in each look for work. */
export const MAX_UNFINISHED = 1000;
/** Batches of all models, ended ones included: a list of them has to stay cheap. */
const MAX_STORED = 100_000;
/** OpenAI's only completion window. */
const COMPLETION_WINDOW_SECONDS = 24 * 60 * 60;
/** Interval of the sweep. Many replicas share one: most find that another has just made it. */
const SWEEP_MS = 10 * 60 * 1000;

export interface BatchLimits {
  readonly maxFileBytes: number;
  /** Limit for all files together. It applies to uploads and new batches; results are stored beyond it. */
  readonly maxStoreBytes: number;
  /** How long files and ended batches are kept; null means until they are deleted. */
  readonly retentionMs: number | null;
}

export interface BatchesOptions {
  /** For requests, whose clients wait: its calls have short time limits. */
  readonly store: ObjectStore;
  /** The same objects for background work: its calls have longer time limits. */
  readonly backgroundStore: ObjectStore;
  readonly queue: JobQueue;
  readonly runner: Omit<BatchRunnerOptions, "records" | "files" | "serverId" | "onDamaged">;
  /** The service's model. It answers the lines that name no model. */
  readonly model: string;
  readonly limits: BatchLimits;
  /** Interval at which the store is listed for batches that others have left or created. */
  readonly lookMs: number;
  /** How long the cancellation of a waiting batch may hold the request; the work continues after it. */
  readonly cancelMs: number;
  /** Removes what writes of killed processes left in the store, apart from objects. Never rejects. */
  readonly removeLeftovers?: () => Promise<void>;
  /** A clock that is never set. Default: milliseconds since the process started. */
  readonly steadyNow?: () => number;
  readonly logger: Logger;
}

export interface NewBatch {
  readonly inputFileId: string;
  readonly endpoint: BatchUrl;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Lifetime of the result files; null leaves it to the retention. */
  readonly outputExpiresAfterSeconds?: number | null;
}

export type CreatedBatch =
  | { readonly kind: "created"; readonly batch: BatchObject }
  | { readonly kind: "unknown file" | "damaged file" | "other purpose" }
  | { readonly kind: "too many" | "store full"; readonly limit: number };

export type CancelledBatch =
  | { readonly kind: "cancelling" | "ended"; readonly batch: BatchObject }
  | { readonly kind: "unknown" };

/**
 * Mutable; one per process. Methods throw StorageError, and DamagedRecordError where they read a damaged record. `create`
 * also throws StoreFullError.
 */
export class Batches {
  readonly files: StoredFiles;
  readonly limits: BatchLimits;
  readonly quota: StoreQuota;
  readonly sweep: RetentionSweep;
  readonly #records: BatchRecords;
  readonly #options: BatchesOptions;
  readonly #runner: BatchRunnerOptions;
  /** Jobs with damaged records. They are left for a person or a later version. */
  readonly #damagedJobs = new Set<string>();
  /** Jobs that `cancel` is working on. */
  readonly #takenJobs = new Set<string>();
  /** As the last look found them, and as this process has changed them since. */
  #unfinishedJobs = new Set<string>();
  #looking: Ticker | null = null;
  #sweeping: Ticker | null = null;
  #isOutOfReach = false;
  #numRunning = 0;

  constructor(options: BatchesOptions) {
    const { store, backgroundStore, model, limits, runner, logger } = options;
    const damage = new DamageLog(logger);
    const { now } = runner;
    const { retentionMs } = limits;
    this.#options = options;
    this.limits = limits;
    this.files = new StoredFiles({ store, now, retentionMs, damage });
    this.quota = new StoreQuota({ maxBytes: limits.maxStoreBytes, measure: () => this.files.measure() });
    this.#records = new BatchRecords({ store, model, damage });
    const records = new BatchRecords({ store: backgroundStore, model, damage });
    const files = new StoredFiles({ store: backgroundStore, now, retentionMs, damage });
    this.sweep = new RetentionSweep({
      ...options,
      store: backgroundStore,
      records,
      files,
      logs: runner.logs,
      metrics: runner.answer.metrics,
      retentionMs,
      windowMs: COMPLETION_WINDOW_SECONDS * 1000,
      intervalMs: SWEEP_MS,
      now,
    });
    this.#runner = {
      ...runner,
      records,
      files,
      serverId: randomUuid(),
      onDamaged: (jobId) => this.#damagedJobs.add(jobId),
    };
  }

  async create(
    tenant: string,
    { inputFileId, endpoint, metadata, outputExpiresAfterSeconds = null }: NewBatch,
  ): Promise<CreatedBatch> {
    const file = await this.files.find(tenant, inputFileId).catch(asDamaged);
    if (file === "damaged") return { kind: "damaged file" };
    if (file === null) return { kind: "unknown file" };
    if (file.purpose !== "batch") return { kind: "other purpose" };
    if ((await this.#records.listUnfinished()).length >= MAX_UNFINISHED) {
      return { kind: "too many", limit: MAX_UNFINISHED };
    }
    if ((await this.#records.count()) >= MAX_STORED) return { kind: "store full", limit: MAX_STORED };
    // Otherwise batches of one small file could fill the disk with results, one after the other.
    await this.quota.requireRoom();
    const nowMs = this.#options.runner.now();
    const createdAt = Math.floor(nowMs / 1000);
    const batch: BatchObject = {
      id: createId("batch", nowMs),
      object: "batch",
      endpoint,
      model: this.#options.model,
      errors: null,
      input_file_id: inputFileId,
      completion_window: "24h",
      status: "validating",
      output_file_id: null,
      error_file_id: null,
      created_at: createdAt,
      in_progress_at: null,
      expires_at: createdAt + COMPLETION_WINDOW_SECONDS,
      finalizing_at: null,
      completed_at: null,
      failed_at: null,
      expired_at: null,
      cancelling_at: null,
      cancelled_at: null,
      request_counts: { total: 0, completed: 0, failed: 0 },
      usage: null,
      metadata: metadata === null ? null : { ...metadata },
    };
    const beside = { outputFileId: this.files.newId(), errorFileId: this.files.newId() };
    const progress = {
      outputExpiresAfterSeconds,
      ending: null,
      startedBy: null,
      numFruitlessStarts: 0,
      numFailedAttempts: 0,
    };
    const jobId = await this.#records.add({ batch, tenant, ...beside, ...progress });
    this.#unfinishedJobs.add(jobId);
    this.#showUnfinished();
    await this.#tell(jobId);
    return { kind: "created", batch };
  }

  async find(tenant: string, batchId: string): Promise<BatchObject | null> {
    return this.#records.find(tenant, batchId);
  }

  /** Call it for an id that `find` does not know: whether such a batch has been removed. */
  isPastRetention(batchId: string): boolean {
    const { retentionMs } = this.limits;
    if (retentionMs === null || !isId("batch", batchId)) return false;
    return createdAtMs("batch", batchId) + retentionMs <= this.#options.runner.now();
  }

  async list(tenant: string, page: PageOptions): Promise<Page<BatchObject>> {
    return this.#records.list(tenant, page);
  }

  /** Idempotent. Lines in progress are finished. */
  async cancel(tenant: string, batchId: string): Promise<CancelledBatch> {
    const batch = await this.find(tenant, batchId);
    if (batch === null) return { kind: "unknown" };
    if (isFinal(batch.status)) return { kind: batch.status === "cancelled" ? "cancelling" : "ended", batch };
    if (batch.status === "cancelling") return { kind: "cancelling", batch };
    const jobId = this.#records.jobIdOf(tenant, batchId);
    const seconds = Math.floor(this.#options.runner.now() / 1000);
    await this.#records.cancel(jobId, seconds);
    // A waiting batch is cancelled at once.
    if (await this.#options.queue.tryTake(jobId)) await this.#endTaken(jobId);
    return { kind: "cancelling", batch: { ...batch, status: "cancelling", cancelling_at: seconds } };
  }

  /** Resolves when the job is finished, has failed or takes too long. Unfinished jobs return with the next look. */
  async #endTaken(jobId: string): Promise<void> {
    const { logger, cancelMs } = this.#options;
    this.#takenJobs.add(jobId);
    const ended = this.#work(jobId, new AbortController().signal)
      .catch((error: unknown) => logger.warn("A batch could not be cancelled at once.", { jobId, error }))
      .finally(() => this.#takenJobs.delete(jobId));
    await Promise.race([ended, sleep(cancelMs, undefined, { ref: false })]);
  }

  /** Resumes unfinished batches, and accepts new ones. The engine must be ready. */
  async start(): Promise<void> {
    const { queue, lookMs } = this.#options;
    queue.start(this.#work);
    await this.#look();
    this.#looking = startTicker(lookMs, () => this.#look());
    this.#sweeping = startTicker(SWEEP_MS, () => this.sweep.tick());
  }

  /** Releases running batches; lines in progress end with the service. */
  async stop(): Promise<void> {
    this.sweep.stop();
    await Promise.all([this.#looking?.stop(), this.#sweeping?.stop()]);
    await this.#options.queue.close();
  }

  /** Call it after `stop`, when no requests are in progress. */
  async close(): Promise<void> {
    await this.#options.store.close();
    await this.#options.backgroundStore.close();
  }

  readonly #work = async (jobId: string, signal: AbortSignal): Promise<JobOutcome> => {
    const { metrics } = this.#runner.answer;
    metrics.setRunningBatches(++this.#numRunning);
    try {
      const outcome = await runBatchJob(jobId, signal, this.#runner);
      if (outcome === "finished") this.#unfinishedJobs.delete(jobId);
      this.#showUnfinished();
      return outcome;
    } finally {
      metrics.setRunningBatches(--this.#numRunning);
    }
  };

  /** Never rejects. */
  async #look(): Promise<void> {
    try {
      const unfinished = await this.#runner.records.listUnfinished();
      const jobIds = unfinished.filter((jobId) => !this.#damagedJobs.has(jobId) && !this.#takenJobs.has(jobId));
      this.#unfinishedJobs = new Set(jobIds);
      this.#showUnfinished();
      for (const jobId of jobIds) await this.#options.queue.add(jobId);
      this.#isOutOfReach = false;
    } catch (error) {
      this.#warnOnce(error);
    }
  }

  #showUnfinished(): void {
    this.#runner.answer.metrics.setUnfinishedBatches(this.#unfinishedJobs.size);
  }

  /** A stored batch is not rejected because of the queue: the next look adds it again. */
  async #tell(jobId: string): Promise<void> {
    await this.#options.queue.add(jobId).catch((error: unknown) => this.#warnOnce(error));
  }

  #warnOnce(error: unknown): void {
    if (!this.#isOutOfReach)
      this.#options.logger.warn("Batches are waiting: their store or queue is unreachable.", { error });
    this.#isOutOfReach = true;
  }
}

function asDamaged(error: unknown): "damaged" {
  if (error instanceof DamagedRecordError) return "damaged";
  throw error;
}
