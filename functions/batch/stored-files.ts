/** The files of the Files API: uploads for batches, and results of batches. */
import { z } from "zod";

import type { ObjectStore, StoredObject, StoredSize } from "../storage/object-store.ts";
import { DamagedRecordError } from "./damaged-records.ts";
import type { DamageLog } from "./damaged-records.ts";
import { createId, isId } from "./ids.ts";
import { TenantRecords, tenantTag } from "./tenant-records.ts";
import type { Page, PageOptions } from "./tenant-records.ts";

const purposes = ["batch", "batch_output"] as const;
export type FilePurpose = (typeof purposes)[number];

/** OpenAI's file object. https://platform.openai.com/docs/api-reference/files/object */
const fileObject = z.object({
  id: z.string(),
  object: z.literal("file"),
  bytes: z.int(),
  /** Seconds since 1970. */
  created_at: z.int(),
  filename: z.string(),
  purpose: z.enum(purposes),
  status: z.literal("processed"),
});
export type FileObject = z.output<typeof fileObject>;

/** A file whose bytes are stored. */
export interface ReceivedFile {
  readonly id: string;
  readonly numBytes: number;
  readonly filename: string;
  readonly purpose: FilePurpose;
}

export interface StoredFilesOptions {
  readonly store: ObjectStore;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly damage: DamageLog;
}

/** Methods that take an id accept any text. Those that read a record throw DamagedRecordError if it is damaged. */
export class StoredFiles {
  readonly #store: ObjectStore;
  readonly #records: TenantRecords<FileObject>;
  readonly #now: () => number;

  constructor({ store, now, damage }: StoredFilesOptions) {
    this.#store = store;
    this.#records = new TenantRecords({ store, folder: "files", schema: fileObject, damage });
    this.#now = now;
  }

  /** All files of all tenants, results included. */
  async measure(): Promise<StoredSize> {
    return this.#store.measure("contents/");
  }

  newId(): string {
    return createId("file", this.#now());
  }

  /**
   * Stores the bytes of a file that stays invisible until `publish`. Rejects with the errors of `chunks` and then
   * leaves nothing behind. Resolves to the number of bytes.
   */
  async receive(id: string, chunks: AsyncIterable<Uint8Array>): Promise<number> {
    return this.#store.write(contentKey(id), chunks);
  }

  /** Deletes the bytes that `receive` stored. */
  async discard(id: string): Promise<void> {
    await this.#store.delete(contentKey(id));
  }

  /** Deletes what a failed `publish` may have stored, and then the bytes. */
  async withdraw(tenant: string, id: string): Promise<void> {
    await this.#records.delete(tenantTag(tenant), id);
    await this.discard(id);
  }

  async publish(tenant: string, { id, numBytes, filename, purpose }: ReceivedFile): Promise<FileObject> {
    const file: FileObject = {
      id,
      object: "file",
      bytes: numBytes,
      created_at: Math.floor(this.#now() / 1000),
      filename,
      purpose,
      status: "processed",
    };
    await this.#records.write(tenantTag(tenant), id, file);
    return file;
  }

  async find(tenant: string, id: string): Promise<FileObject | null> {
    return isId("file", id) ? this.#records.read(tenantTag(tenant), id) : null;
  }

  async list(tenant: string, page: PageOptions, purpose: FilePurpose | null): Promise<Page<FileObject>> {
    const tag = tenantTag(tenant);
    return this.#records.list(tag, page, async (id) => {
      const file = await this.#records.read(tag, id);
      return purpose === null || file?.purpose === purpose ? file : null;
    });
  }

  async read(tenant: string, id: string): Promise<(StoredObject & { readonly file: FileObject }) | null> {
    const file = await this.find(tenant, id);
    const content = file === null ? null : await this.#store.read(contentKey(id));
    return file === null || content === null ? null : { ...content, file };
  }

  /** False if there is no such file. A damaged record is deleted like any other. */
  async delete(tenant: string, id: string): Promise<boolean> {
    const isKnown = await this.find(tenant, id).then((file) => file !== null, trueIfDamaged);
    if (!isKnown) return false;
    // The record is deleted last, because bytes without a record could no longer be deleted.
    await this.#store.delete(contentKey(id));
    await this.#records.delete(tenantTag(tenant), id);
    return true;
  }
}

function trueIfDamaged(error: unknown): true {
  if (error instanceof DamagedRecordError) return true;
  throw error;
}

function contentKey(id: string): string {
  return `contents/${id}`;
}
