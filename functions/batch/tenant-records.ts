/** Small JSON records of an object store, apart for each tenant: one knows nothing of another's. */
import type { z } from "zod";

import { readText, writeText } from "../storage/object-store.ts";
import type { ObjectStore } from "../storage/object-store.ts";

/** Reads under way together. */
const NUM_PARALLEL_READS = 16;
/** Enough of a digest to tell keys apart. */
const TAG_LENGTH = 16;
const NO_TENANT = "all";

export interface PageOptions {
  readonly limit: number;
  /** The id after which the page begins, in its order; null begins at the first. */
  readonly after: string | null;
  readonly order: "asc" | "desc";
}

export interface Page<Item> {
  readonly items: readonly Item[];
  readonly hasMore: boolean;
}

/** The part of a key that stands for the tenant. */
export function tenantTag(tenant: string): string {
  return tenant.slice(0, TAG_LENGTH) || NO_TENANT;
}

export class TenantRecords<RecordType> {
  readonly #store: ObjectStore;
  readonly #folder: string;
  readonly #schema: z.ZodType<RecordType>;

  /** @param folder First part of the keys. */
  constructor(store: ObjectStore, folder: string, schema: z.ZodType<RecordType>) {
    this.#store = store;
    this.#folder = folder;
    this.#schema = schema;
  }

  /** Null where the tenant has none of this id, which must be one. */
  async read(tag: string, id: string): Promise<RecordType | null> {
    return this.#readKey(this.#keyOf(tag, id));
  }

  async write(tag: string, id: string, record: RecordType): Promise<void> {
    await writeText(this.#store, this.#keyOf(tag, id), JSON.stringify(record));
  }

  async delete(tag: string, id: string): Promise<void> {
    await this.#store.delete(this.#keyOf(tag, id));
  }

  /** Those that `isWanted` takes, by age. */
  async list(
    tag: string,
    { limit, after, order }: PageOptions,
    isWanted: (record: RecordType) => boolean = () => true,
  ): Promise<Page<RecordType>> {
    const keys = [...(await this.#store.list(`${this.#folder}/${tag}.`))];
    if (order === "desc") keys.reverse();
    const afterKey = after === null ? null : this.#keyOf(tag, after);
    const rest = keys.filter((key) => afterKey === null || (order === "asc" ? key > afterKey : key < afterKey));
    const items: RecordType[] = [];
    for (let start = 0; start < rest.length && items.length <= limit; start += NUM_PARALLEL_READS) {
      const some = rest.slice(start, start + NUM_PARALLEL_READS).map((key) => this.#readKey(key));
      for (const record of await Promise.all(some)) if (record !== null && isWanted(record)) items.push(record);
    }
    return { items: items.slice(0, limit), hasMore: items.length > limit };
  }

  async #readKey(key: string): Promise<RecordType | null> {
    const text = await readText(this.#store, key);
    return text === null ? null : this.#schema.parse(JSON.parse(text));
  }

  #keyOf(tag: string, id: string): string {
    return `${this.#folder}/${tag}.${id}`;
  }
}
