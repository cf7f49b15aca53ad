/** Removes expired files, ended batches after their retention, and what killed servers left in the store. */
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import { readText, writeText } from "../storage/object-store.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import type { BatchObject, RemovedKind } from "./batch-record.ts";
import type { BatchRecords, JobTraces } from "./batch-records.ts";
import { createdAtMs } from "./ids.ts";
import type { ResultLogs } from "./result-log.ts";
import type { StoredFiles } from "./stored-files.ts";

/** Time of the last sweep in milliseconds since 1970, by the clock of its server. */
const stampKey = "sweeps/last";
/**
 * A server does not believe its clock for a while if the clock was set, if the last sweep lies in its future, or if that
 * was longer ago than this. So a clock that is wrong for a while, or on one of several replicas, removes nothing.
 */
const MAX_PAUSE_MS = 24 * 60 * 60 * 1000;
const DOUBT_MS = 60 * 60 * 1000;
/** Files are removed this long after they expire, so that a server whose clock is behind does not use one meanwhile. */
const SLACK_MS = 10 * 60 * 1000;
/** A clock that deviates more from the process's own since the last tick was set. */
const MAX_DRIFT_MS = 60 * 1000;
/** Bytes without a record that are older belong to no upload in progress. */
const UNPUBLISHED_MS = 24 * 60 * 60 * 1000;

export interface RetentionSweepOptions {
  readonly store: ObjectStore;
  readonly records: BatchRecords;
  readonly files: StoredFiles;
  readonly logs: ResultLogs;
  readonly metrics: Pick<Metrics, "countRemoved">;
  readonly logger: Logger;
  /** Null keeps batches forever, and files until they are deleted or their own lifetime is over. */
  readonly retentionMs: number | null;
  /** Maximum time from the creation of a batch to its end. */
  readonly windowMs: number;
  /** Least time between two sweeps of all servers; also the interval of `tick`. */
  readonly intervalMs: number;
  /** Unix time in milliseconds. */
  readonly now: () => number;
  readonly steadyNow?: () => number;
  readonly removeLeftovers?: () => Promise<void>;
}

/** Mutable; one per process. Any number of servers may sweep the same store: every removal can be repeated. */
export class RetentionSweep {
  readonly #options: RetentionSweepOptions;
  readonly #steadyNow: () => number;
  /** The clocks at the last tick. */
  #last: { readonly wallMs: number; readonly steadyMs: number };
  /** On the process's own clock. */
  #doubtsUntilMs = Number.NEGATIVE_INFINITY;
  /** Found without a record by the last sweep. */
  #unpublished: ReadonlySet<string> = new Set();
  #isStopped = false;

  constructor(options: RetentionSweepOptions) {
    this.#options = options;
    this.#steadyNow = options.steadyNow ?? (() => performance.now());
    this.#last = { wallMs: options.now(), steadyMs: this.#steadyNow() };
  }

  /** Ends the sweep under way after its next removal. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Sweeps if it is time to, and the clock can be believed. Never rejects. */
  async tick(): Promise<void> {
    const { logger, metrics } = this.#options;
    this.#compareClocks();
    const removed: Record<RemovedKind, number> = { file: 0, batch: 0, leftover: 0 };
    try {
      if (this.#last.steadyMs < this.#doubtsUntilMs || !(await this.#takeTurn())) return;
      await this.#sweep(this.#options.now() - SLACK_MS, removed);
    } catch (error) {
      logger.warn("Expired files and batches could not be removed; retrying.", { error });
    } finally {
      const { file: numFiles, batch: numBatches, leftover: numLeftovers } = removed;
      for (const kind of ["file", "batch", "leftover"] as const) metrics.countRemoved(kind, removed[kind]);
      if (numFiles + numBatches + numLeftovers > 0) {
        logger.info("Expired files and batches were removed.", { numFiles, numBatches, numLeftovers });
      }
    }
  }

  #compareClocks(): void {
    const { wallMs, steadyMs } = this.#last;
    this.#last = { wallMs: this.#options.now(), steadyMs: this.#steadyNow() };
    const driftMs = this.#last.wallMs - wallMs - (this.#last.steadyMs - steadyMs);
    if (Math.abs(driftMs) > MAX_DRIFT_MS) this.#doubt("The clock was set");
  }

  #doubt(reason: string): void {
    this.#doubtsUntilMs = this.#last.steadyMs + DOUBT_MS;
    this.#options.logger.warn(`${reason}: expired files and batches are kept for another hour.`);
  }

  /** Whether this server is to sweep now. Another one may have done so. */
  async #takeTurn(): Promise<boolean> {
    const { store, intervalMs, now } = this.#options;
    const nowMs = now();
    const stamp = Number((await readText(store, stampKey)) ?? Number.NaN);
    const pauseMs = nowMs - stamp;
    // Ticks are not exact, and clocks differ a little.
    if (Math.abs(pauseMs) < intervalMs - MAX_DRIFT_MS) return false;
    await writeText(store, stampKey, String(nowMs));
    if (pauseMs < 0) this.#doubt("The clocks of the servers that share the store of batches differ");
    else if (pauseMs <= MAX_PAUSE_MS) return true;
    else this.#doubtsUntilMs = this.#last.steadyMs + DOUBT_MS;
    return false;
  }

  async #sweep(timeMs: number, removed: Record<RemovedKind, number>): Promise<void> {
    const { files, records, logs } = this.#options;
    await this.#options.removeLeftovers?.();
    const [due, unpublished, jobs] = [
      await files.listDue(timeMs),
      await this.#listUnpublished(timeMs),
      await records.listTraces(),
    ];
    for (const job of jobs) {
      if (this.#isStopped) return;
      const kind = await this.#kindOfDue(job, timeMs);
      if (kind === null) continue;
      await records.remove(job);
      await logs.delete(job.jobId);
      removed[kind] += 1;
    }
    if (due.length + unpublished.length === 0) return;
    // No batch is created with a file that expired before the slack, so those that exist now are all that use one.
    const inUse = await this.#filesInUse(await records.listTraces());
    for (const file of due) {
      if (this.#isStopped) return;
      if (!inUse.has(file.id) && (await files.removeDue(file, timeMs))) removed.file += 1;
    }
    for (const id of unpublished) {
      if (this.#isStopped) return;
      if (inUse.has(id)) continue;
      await files.discard(id);
      removed.leftover += 1;
    }
  }

  /** Bytes that two sweeps have found without a record. */
  async #listUnpublished(timeMs: number): Promise<readonly string[]> {
    const before = this.#unpublished;
    const ids = (await this.#options.files.listUnpublished()).filter(
      (id) => createdAtMs("file", id) + UNPUBLISHED_MS <= timeMs,
    );
    this.#unpublished = new Set(ids);
    return ids.filter((id) => before.has(id));
  }

  /** Inputs and results of unfinished batches. */
  async #filesInUse(jobs: readonly JobTraces[]): Promise<ReadonlySet<string>> {
    const inUse = new Set<string>();
    for (const job of jobs) {
      if (job.unfinishedBy.length === 0) continue;
      const record = await this.#options.records.readCreated(job);
      if (record === null) continue;
      for (const id of [record.batch.input_file_id, record.outputFileId, record.errorFileId]) inUse.add(id);
    }
    return inUse;
  }

  /** Null if the job is to stay. */
  async #kindOfDue(job: JobTraces, timeMs: number): Promise<RemovedKind | null> {
    const { records, retentionMs, windowMs } = this.#options;
    if (retentionMs === null) return null;
    const createdMs = createdAtMs("batch", job.jobId.split(".")[1]!);
    // Names alone show that most jobs are too young.
    if (createdMs + retentionMs > timeMs) return null;
    const isLeft = createdMs + windowMs + retentionMs <= timeMs;
    const isUnfinished = job.unfinishedBy.length > 0;
    // No server of its model has ended it since.
    if (isUnfinished && !records.isOwn(job)) return isLeft ? "batch" : null;
    const stored = await records.readJob(job.jobId);
    switch (stored.kind) {
      case "ended":
        return !isUnfinished && endedAtMs(stored.record.batch) + retentionMs <= timeMs ? "batch" : null;
      case "open":
        // Only its marker makes a batch run.
        return isLeft && !isUnfinished ? "leftover" : null;
      case "unknown":
        return isLeft ? "leftover" : null;
      case "damaged":
        return isLeft ? "batch" : null;
    }
  }
}

function endedAtMs({ created_at: createdAt, ...batch }: BatchObject): number {
  const endedAt = batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at;
  return (endedAt ?? createdAt) * 1000;
}
