/** The batches that are kept, and which of them are to be done: all that a server that starts has to know. */
import { createHash } from "node:crypto";

import { readText, writeText } from "../storage/object-store.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import { batchRecord, isFinal } from "./batch-record.ts";
import type { BatchObject, BatchRecord } from "./batch-record.ts";
import { isId } from "./ids.ts";
import { TenantRecords, tenantTag } from "./tenant-records.ts";
import type { Page, PageOptions } from "./tenant-records.ts";

/**
 * Jobs are named `tenant.batch`. Only who has the job writes its record, so what others want of it, that it be
 * cancelled, is an object of its own.
 */
export class BatchRecords {
  readonly #store: ObjectStore;
  readonly #records: TenantRecords<BatchRecord>;
  readonly #unfinished: string;

  /** @param model Servers of another model see the batches, but these are not for them to do. */
  constructor(store: ObjectStore, model: string) {
    this.#store = store;
    this.#records = new TenantRecords(store, "batches", batchRecord);
    this.#unfinished = `unfinished/${modelTag(model)}.`;
  }

  jobIdOf(tenant: string, batchId: string): string {
    return `${tenantTag(tenant)}.${batchId}`;
  }

  /** Null where the tenant has none of this id, which may be any text. */
  async find(tenant: string, batchId: string): Promise<BatchObject | null> {
    if (!isId("batch", batchId)) return null;
    const record = await this.#records.read(tenantTag(tenant), batchId);
    if (record === null) return null;
    return withCancellation(record.batch, await this.cancellingAt(this.jobIdOf(tenant, batchId)));
  }

  async list(tenant: string, page: PageOptions): Promise<Page<BatchObject>> {
    const { items, hasMore } = await this.#records.list(tenantTag(tenant), page);
    const cancelling = new Set(await this.#store.list(`cancellations/${tenantTag(tenant)}.`));
    const batches = items.map(async ({ batch }) => {
      const jobId = this.jobIdOf(tenant, batch.id);
      return withCancellation(batch, cancelling.has(`cancellations/${jobId}`) ? await this.cancellingAt(jobId) : null);
    });
    return { items: await Promise.all(batches), hasMore };
  }

  /** A new batch, which is to be done as soon as this resolves. */
  async add(record: BatchRecord): Promise<string> {
    const jobId = this.jobIdOf(record.tenant, record.batch.id);
    await this.writeJob(jobId, record);
    await writeText(this.#store, this.#unfinished + jobId, "");
    return jobId;
  }

  async readJob(jobId: string): Promise<BatchRecord | null> {
    const [tag, batchId] = splitJobId(jobId);
    return this.#records.read(tag, batchId);
  }

  async writeJob(jobId: string, record: BatchRecord): Promise<void> {
    const [tag, batchId] = splitJobId(jobId);
    await this.#records.write(tag, batchId, record);
  }

  /** Of this model, in the order in which they were made. */
  async listUnfinished(): Promise<readonly string[]> {
    const jobIds = (await this.#store.list(this.#unfinished)).map((key) => key.slice(this.#unfinished.length));
    return jobIds.sort((first, second) => (splitJobId(first)[1] < splitJobId(second)[1] ? -1 : 1));
  }

  /** To be called when the record says how the batch has ended. */
  async finishJob(jobId: string): Promise<void> {
    await this.#store.delete(this.#unfinished + jobId);
    await this.#store.delete(`cancellations/${jobId}`);
  }

  /** @param seconds Since 1970. */
  async cancel(jobId: string, seconds: number): Promise<void> {
    await writeText(this.#store, `cancellations/${jobId}`, String(seconds));
  }

  /** Null where nobody has asked for it. */
  async cancellingAt(jobId: string): Promise<number | null> {
    const text = await readText(this.#store, `cancellations/${jobId}`);
    return text === null ? null : Number(text);
  }
}

function splitJobId(jobId: string): readonly [tag: string, batchId: string] {
  const [tag, batchId] = jobId.split(".", 2);
  return [tag, batchId];
}

/** Of a name of any length and characters. */
export function modelTag(model: string): string {
  return createHash("sha256").update(model).digest("hex").slice(0, 12);
}

/** The batch as it is for everybody but its runner, who may not have noticed yet. */
function withCancellation(batch: BatchObject, cancellingAt: number | null): BatchObject {
  if (cancellingAt === null || isFinal(batch.status)) return batch;
  return { ...batch, status: "cancelling", cancelling_at: cancellingAt };
}
