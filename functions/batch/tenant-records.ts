/** Small JSON records in an object store, separate for each tenant: no tenant sees the records of another. */
import type { z } from "zod";

import { readText, writeText } from "../storage/object-store.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import { DamagedRecordError } from "./damaged-records.ts";
import type { DamageLog } from "./damaged-records.ts";

/** Maximum number of concurrent reads. */
const NUM_PARALLEL_READS = 16;
/** Enough of a digest to tell keys apart. */
const TAG_LENGTH = 16;
const noTenant = "all";

export interface PageOptions {
  readonly limit: number;
  /** The page starts after this id in its order; null starts at the first. */
  readonly after: string | null;
  readonly order: "asc" | "desc";
}

export interface Page<Item> {
  readonly items: readonly Item[];
  readonly hasMore: boolean;
}

export interface TenantRecordsOptions<RecordType> {
  readonly store: ObjectStore;
  /** First part of the keys. */
  readonly folder: string;
  readonly schema: z.ZodType<RecordType>;
  readonly damage: DamageLog;
}

/** The part of a key that identifies the tenant. */
export function tenantTag(tenant: string): string {
  return tenant.slice(0, TAG_LENGTH) || noTenant;
}

/** Reading a damaged record logs it once and throws DamagedRecordError; lists skip it. */
export class TenantRecords<RecordType> {
  readonly #options: TenantRecordsOptions<RecordType>;

  constructor(options: TenantRecordsOptions<RecordType>) {
    this.#options = options;
  }

  /** Null if the tenant has no record with this id, which must be well-formed. */
  async read(tag: string, id: string): Promise<RecordType | null> {
    const { store, schema, damage } = this.#options;
    const key = this.keyOf(tag, id);
    const text = await readText(store, key);
    if (text === null) return null;
    try {
      return schema.parse(JSON.parse(text));
    } catch (cause) {
      damage.report(key, cause);
      throw new DamagedRecordError(key, cause);
    }
  }

  /** Whether there is a record, damaged or not. */
  async has(tag: string, id: string): Promise<boolean> {
    return (await readText(this.#options.store, this.keyOf(tag, id))) !== null;
  }

  async write(tag: string, id: string, record: RecordType): Promise<void> {
    await writeText(this.#options.store, this.keyOf(tag, id), JSON.stringify(record));
  }

  async delete(tag: string, id: string): Promise<void> {
    await this.#options.store.delete(this.keyOf(tag, id));
  }

  /**
   * A page of the tenant's records by age.
   *
   * @param read Returns the entry for the record of an id; null skips it. Default: the record itself.
   */
  async list(
    tag: string,
    { limit, after, order }: PageOptions,
    read: (id: string) => Promise<RecordType | null> = (id) => this.read(tag, id),
  ): Promise<Page<RecordType>> {
    const ids = await this.listIds(tag);
    if (order === "desc") ids.reverse();
    const rest = ids.filter((id) => after === null || (order === "asc" ? id > after : id < after));
    const items: RecordType[] = [];
    for (let start = 0; start < rest.length && items.length <= limit; start += NUM_PARALLEL_READS) {
      const some = rest.slice(start, start + NUM_PARALLEL_READS).map((id) => read(id).catch(nullIfDamaged));
      for (const record of await Promise.all(some)) if (record !== null) items.push(record);
    }
    return { items: items.slice(0, limit), hasMore: items.length > limit };
  }

  /** The oldest first. */
  async listIds(tag: string): Promise<string[]> {
    const prefix = this.keyOf(tag, "");
    return (await this.#options.store.list(prefix)).map((key) => key.slice(prefix.length));
  }

  keyOf(tag: string, id: string): string {
    return `${this.#options.folder}/${tag}.${id}`;
  }
}

function nullIfDamaged(error: unknown): null {
  if (error instanceof DamagedRecordError) return null;
  throw error;
}
