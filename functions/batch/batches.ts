/** What the routes of files and batches do: uploads, queued batches, and the work on them beside the requests. */
import type { Logger } from "../logger.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import type { BatchUrl } from "./batch-line.ts";
import { isFinal } from "./batch-record.ts";
import type { BatchObject } from "./batch-record.ts";
import { BatchRecords } from "./batch-records.ts";
import { runBatchJob } from "./batch-runner.ts";
import type { BatchRunnerOptions } from "./batch-runner.ts";
import { createId } from "./ids.ts";
import type { JobOutcome, JobQueue } from "./job-queue.ts";
import { StoredFiles } from "./stored-files.ts";
import type { Page, PageOptions } from "./tenant-records.ts";
import { startTicker } from "./ticker.ts";
import type { Ticker } from "./ticker.ts";

/** Batches that wait or are under way; they are listed to see whether there is something to do. */
const MAX_UNFINISHED = 1000;
/** OpenAI's only completion window. */
const COMPLETION_WINDOW_SECONDS = 24 * 60 * 60;

export interface BatchLimits {
  readonly maxFileBytes: number;
  /** Of all files together; results are kept beyond it. */
  readonly maxStoreBytes: number;
}

export interface BatchesOptions {
  readonly store: ObjectStore;
  readonly queue: JobQueue;
  readonly runner: Omit<BatchRunnerOptions, "records" | "files">;
  /** Of the service; it answers the lines that name none. */
  readonly model: string;
  readonly limits: BatchLimits;
  /** How often is looked whether others have left something to do. */
  readonly lookMs: number;
  readonly logger: Logger;
}

export interface NewBatch {
  readonly inputFileId: string;
  readonly endpoint: BatchUrl;
  readonly metadata: Readonly<Record<string, string>> | null;
}

export type CreatedBatch =
  | { readonly kind: "created"; readonly batch: BatchObject }
  | { readonly kind: "unknown file" | "file of results" }
  | { readonly kind: "too many"; readonly limit: number };

export type CancelledBatch =
  | { readonly kind: "cancelling" | "ended"; readonly batch: BatchObject }
  | { readonly kind: "unknown" };

/** Mutable; one per process. */
export class Batches {
  readonly files: StoredFiles;
  readonly limits: BatchLimits;
  readonly #records: BatchRecords;
  readonly #options: BatchesOptions;
  #looking: Ticker | null = null;
  #isOutOfReach = false;
  #numRunning = 0;

  constructor(options: BatchesOptions) {
    const { store, model, limits, runner } = options;
    this.#options = options;
    this.limits = limits;
    this.files = new StoredFiles(store, runner.now);
    this.#records = new BatchRecords(store, model);
  }

  async create(tenant: string, { inputFileId, endpoint, metadata }: NewBatch): Promise<CreatedBatch> {
    const file = await this.files.find(tenant, inputFileId);
    if (file === null) return { kind: "unknown file" };
    if (file.purpose !== "batch") return { kind: "file of results" };
    if ((await this.#records.listUnfinished()).length >= MAX_UNFINISHED) {
      return { kind: "too many", limit: MAX_UNFINISHED };
    }
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
    const jobId = await this.#records.add({ batch, tenant, ...beside, ending: null, numFruitlessStarts: 0 });
    await this.#tell(jobId);
    return { kind: "created", batch };
  }

  async find(tenant: string, batchId: string): Promise<BatchObject | null> {
    return this.#records.find(tenant, batchId);
  }

  async list(tenant: string, page: PageOptions): Promise<Page<BatchObject>> {
    return this.#records.list(tenant, page);
  }

  /** Once is enough; lines under way are answered to their end. */
  async cancel(tenant: string, batchId: string): Promise<CancelledBatch> {
    const batch = await this.find(tenant, batchId);
    if (batch === null) return { kind: "unknown" };
    if (isFinal(batch.status)) return { kind: batch.status === "cancelled" ? "cancelling" : "ended", batch };
    if (batch.status === "cancelling") return { kind: "cancelling", batch };
    const jobId = this.#records.jobIdOf(tenant, batchId);
    const seconds = Math.floor(this.#options.runner.now() / 1000);
    await this.#records.cancel(jobId, seconds);
    // One that waits for its turn need not wait for that.
    if (await this.#options.queue.tryTake(jobId)) await this.#work(jobId, new AbortController().signal);
    return { kind: "cancelling", batch: { ...batch, status: "cancelling", cancelling_at: seconds } };
  }

  /** Goes on with what is unfinished, and takes what comes. The engine must be ready. */
  async start(): Promise<void> {
    const { queue, lookMs } = this.#options;
    queue.start(this.#work);
    await this.#look();
    this.#looking = startTicker(lookMs, () => this.#look());
  }

  /** Releases what is under way, as far as it is not answered yet; lines under way end with the service. */
  async stop(): Promise<void> {
    await this.#looking?.stop();
    await this.#options.queue.close();
  }

  /** To be called when it has stopped, and nothing is asked any more. */
  async close(): Promise<void> {
    await this.#options.store.close();
  }

  readonly #work = async (jobId: string, signal: AbortSignal): Promise<JobOutcome> => {
    const { runner } = this.#options;
    const { metrics } = runner.answer;
    metrics.setRunningBatches(++this.#numRunning);
    try {
      return await runBatchJob(jobId, signal, { ...runner, records: this.#records, files: this.files });
    } finally {
      metrics.setRunningBatches(--this.#numRunning);
    }
  };

  /** Never rejects. */
  async #look(): Promise<void> {
    try {
      const jobIds = await this.#records.listUnfinished();
      this.#options.runner.answer.metrics.setUnfinishedBatches(jobIds.length);
      for (const jobId of jobIds) await this.#options.queue.add(jobId);
      this.#isOutOfReach = false;
    } catch (error) {
      this.#warnOnce(error);
    }
  }

  /** A batch that is kept is not refused because of the queue, which is told again when it can be. */
  async #tell(jobId: string): Promise<void> {
    await this.#options.queue.add(jobId).catch((error: unknown) => this.#warnOnce(error));
  }

  #warnOnce(error: unknown): void {
    if (!this.#isOutOfReach)
      this.#options.logger.warn("Batches wait: their store or queue is out of reach.", { error });
    this.#isOutOfReach = true;
  }
}
