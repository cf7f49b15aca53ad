/** The records of batches in the store: everything that a server needs to know when it starts. */
import { createHash } from "node:crypto";

import { readText, writeText } from "../storage/object-store.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import { batchRecord, isFinal } from "./batch-record.ts";
import type { BatchObject, BatchRecord } from "./batch-record.ts";
import { DamagedRecordError } from "./damaged-records.ts";
import type { DamageLog } from "./damaged-records.ts";
import { createdAtMs, isId } from "./ids.ts";
import { TenantRecords, tenantTag } from "./tenant-records.ts";
import type { Page, PageOptions } from "./tenant-records.ts";

/** Everything in the store that names a job. */
export interface JobTraces {
  readonly jobId: string;
  /** Tags of the models whose servers have it as unfinished. */
  readonly unfinishedBy: readonly string[];
}

/** The store's data about a job. `damaged`: neither its state nor its marker can be read. */
export type StoredJob =
  | { readonly kind: "open" | "ended"; readonly record: BatchRecord }
  | { readonly kind: "unknown" | "damaged" };

export interface BatchRecordsOptions {
  readonly store: ObjectStore;
  /** Servers of another model see the batches but do not work on them. */
  readonly model: string;
  readonly damage: DamageLog;
}

/**
 * A batch is up to four objects, named by its job, `tenant.batch`:
 *
 * - `unfinished/model.job`, the marker: the batch as it was created. One write creates the batch, and its deletion is
 *   the last thing that happens to the batch.
 * - `batches/job`: the state while it runs. Only the job's worker writes it.
 * - `cancellations/job`: others ask the worker to cancel.
 * - `endings/job`: how the batch ended. It counts more than the state, so that a write of the state that a store
 *   applies late, after its worker gave up waiting, cannot undo the ending.
 */
export class BatchRecords {
  readonly #store: ObjectStore;
  readonly #model: string;
  readonly #states: TenantRecords<BatchRecord>;
  readonly #endings: TenantRecords<BatchRecord>;
  readonly #markers: TenantRecords<BatchRecord>;

  constructor({ store, model, damage }: BatchRecordsOptions) {
    this.#store = store;
    this.#model = modelTag(model);
    this.#states = new TenantRecords({ store, folder: "batches", schema: batchRecord, damage });
    this.#endings = new TenantRecords({ store, folder: "endings", schema: batchRecord, damage });
    this.#markers = new TenantRecords({ store, folder: "unfinished", schema: batchRecord, damage });
  }

  jobIdOf(tenant: string, batchId: string): string {
    return `${tenantTag(tenant)}.${batchId}`;
  }

  /** Null if the tenant has no batch with this id, which may be any text. Throws DamagedRecordError. */
  async find(tenant: string, batchId: string): Promise<BatchObject | null> {
    if (!isId("batch", batchId)) return null;
    const tag = tenantTag(tenant);
    const jobId = this.jobIdOf(tenant, batchId);
    const [ending, state, cancellingAt] = await Promise.all([
      this.#endings.read(tag, batchId),
      this.#states.read(tag, batchId).catch(asValue),
      this.cancellingAt(jobId),
    ]);
    if (ending !== null) return ending.batch;
    if (state instanceof DamagedRecordError) throw state;
    const record = state ?? (await this.#markers.read(...this.#splitMarker(jobId)));
    return record === null ? null : withCancellation(record.batch, cancellingAt);
  }

  async list(tenant: string, page: PageOptions): Promise<Page<BatchObject>> {
    const tag = tenantTag(tenant);
    const [endedIds, cancellations] = await Promise.all([
      this.#endings.listIds(tag),
      this.#store.list(`cancellations/${tag}.`),
    ]);
    const [ended, cancelling] = [new Set(endedIds), new Set(cancellations)];
    const { items, hasMore } = await this.#states.list(tag, page, (id) =>
      ended.has(id) ? this.#endings.read(tag, id) : this.#states.read(tag, id),
    );
    const batches = items.map(async ({ batch }) => {
      const jobId = this.jobIdOf(tenant, batch.id);
      return withCancellation(batch, cancelling.has(`cancellations/${jobId}`) ? await this.cancellingAt(jobId) : null);
    });
    return { items: await Promise.all(batches), hasMore };
  }

  /**
   * Creates a batch. Rejects if the marker cannot be stored. Once it is stored, the batch will be processed, so a state
   * that cannot be stored now is left to the worker.
   */
  async add(record: BatchRecord): Promise<string> {
    const jobId = this.jobIdOf(record.tenant, record.batch.id);
    await this.#markers.write(...this.#splitMarker(jobId), record);
    await this.writeJob(jobId, record).catch(() => {});
    return jobId;
  }

  /** A state that is damaged or was never stored is replaced by the one with which the batch was created. */
  async readJob(jobId: string): Promise<StoredJob> {
    const [tag, batchId] = splitJobId(jobId);
    const ending = await this.#endings.read(tag, batchId).catch(asValue);
    if (ending instanceof DamagedRecordError) return { kind: "damaged" };
    if (ending !== null) return { kind: "ended", record: ending };
    const state = await this.#states.read(tag, batchId).catch(asValue);
    if (state !== null && !(state instanceof DamagedRecordError)) {
      return { kind: isFinal(state.batch.status) ? "ended" : "open", record: state };
    }
    const created = await this.#markers.read(...this.#splitMarker(jobId)).catch(asValue);
    if (created instanceof DamagedRecordError) return { kind: "damaged" };
    if (created !== null) return { kind: "open", record: created };
    return { kind: state === null ? "unknown" : "damaged" };
  }

  async hasEnded(jobId: string): Promise<boolean> {
    return this.#endings.has(...splitJobId(jobId));
  }

  async writeJob(jobId: string, record: BatchRecord): Promise<void> {
    await this.#states.write(...splitJobId(jobId), record);
  }

  /** From here on the batch is as `record` says, whatever else is written. */
  async endJob(jobId: string, record: BatchRecord): Promise<void> {
    await this.#endings.write(...splitJobId(jobId), record);
  }

  /** Jobs of all models and tenants, those with nothing but leftovers included. */
  async listTraces(): Promise<readonly JobTraces[]> {
    const models = new Map<string, string[]>();
    const add = (jobId: string, model: string | null): void => {
      if (!isId("batch", splitJobId(jobId)[1] ?? "")) return;
      const known = models.get(jobId) ?? [];
      models.set(jobId, model === null ? known : [...known, model]);
    };
    for (const folder of ["batches", "endings", "cancellations", "results"]) {
      for (const key of await this.#store.list(`${folder}/`)) {
        add(splitJobId(key.slice(folder.length + 1)).join("."), null);
      }
    }
    for (const key of await this.#store.list("unfinished/")) {
      const [model = "", ...jobId] = key.slice("unfinished/".length).split(".");
      add(jobId.join("."), model);
    }
    return Array.from(models, ([jobId, unfinishedBy]) => ({ jobId, unfinishedBy }));
  }

  /** Number of batches of all models and tenants. */
  async count(): Promise<number> {
    return (await this.#store.list("batches/")).length;
  }

  /** Whether servers of this model work on the job. */
  isOwn({ unfinishedBy }: JobTraces): boolean {
    return unfinishedBy.includes(this.#model);
  }

  /** The record with which an unfinished batch was created; null if it is damaged or has just ended. */
  async readCreated({ jobId, unfinishedBy }: JobTraces): Promise<BatchRecord | null> {
    const [tag, batchId] = splitJobId(jobId);
    return this.#markers.read(`${unfinishedBy[0] ?? this.#model}.${tag}`, batchId).catch(nullIfDamaged);
  }

  /** Removes all records of a job. The markers go first: a marker alone would be a new batch. */
  async remove({ jobId, unfinishedBy }: JobTraces): Promise<void> {
    const [tag, batchId] = splitJobId(jobId);
    for (const model of unfinishedBy) await this.#markers.delete(`${model}.${tag}`, batchId);
    await this.#store.delete(`cancellations/${jobId}`);
    await this.#states.delete(tag, batchId);
    // Last, because a state without its ending would seem to be running.
    await this.#endings.delete(tag, batchId);
  }

  /** The batches of this model, in the order of creation. */
  async listUnfinished(): Promise<readonly string[]> {
    const jobIds = await this.#markers.listIds(this.#model);
    // Foreign objects are not jobs.
    const ofBatches = jobIds.filter((jobId) => isId("batch", splitJobId(jobId)[1] ?? ""));
    return ofBatches.sort((first, second) => (splitJobId(first)[1] < splitJobId(second)[1] ? -1 : 1));
  }

  /** Call it after `endJob`, when nothing is left to do. */
  async finishJob(jobId: string): Promise<void> {
    await this.#store.delete(`cancellations/${jobId}`);
    await this.#markers.delete(...this.#splitMarker(jobId));
  }

  /** @param seconds Unix time. */
  async cancel(jobId: string, seconds: number): Promise<void> {
    await writeText(this.#store, `cancellations/${jobId}`, String(seconds));
  }

  /** Unix time in seconds; null if the batch is not to be cancelled. */
  async cancellingAt(jobId: string): Promise<number | null> {
    const text = await readText(this.#store, `cancellations/${jobId}`);
    if (text === null) return null;
    const seconds = Number(text);
    // The existence of the object means cancellation; if its text is damaged, only the time is lost.
    if (text !== "" && Number.isSafeInteger(seconds)) return seconds;
    return Math.floor(createdAtMs("batch", splitJobId(jobId)[1]) / 1000);
  }

  #splitMarker(jobId: string): readonly [tag: string, batchId: string] {
    const [tag, batchId] = splitJobId(jobId);
    return [`${this.#model}.${tag}`, batchId];
  }
}

function asValue(error: unknown): DamagedRecordError {
  if (error instanceof DamagedRecordError) return error;
  throw error;
}

function nullIfDamaged(error: unknown): null {
  if (error instanceof DamagedRecordError) return null;
  throw error;
}

function splitJobId(jobId: string): readonly [tag: string, batchId: string] {
  const [tag, batchId] = jobId.split(".", 2);
  return [tag!, batchId!];
}

/** A tag of fixed length for a name of any length and characters. */
export function modelTag(model: string): string {
  return createHash("sha256").update(model).digest("hex").slice(0, 12);
}

/** The batch as clients see it; its worker may not know of the cancellation yet. */
function withCancellation(batch: BatchObject, cancellingAt: number | null): BatchObject {
  if (cancellingAt === null || isFinal(batch.status)) return batch;
  return { ...batch, status: "cancelling", cancelling_at: cancellingAt };
}
