/** The files of the Files API: what was uploaded for batches, and what batches answered. */
import { z } from "zod";

import type { ObjectStore, StoredObject } from "../storage/object-store.ts";
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

/** One whose bytes are there. */
export interface ReceivedFile {
  readonly id: string;
  readonly numBytes: number;
  readonly filename: string;
  readonly purpose: FilePurpose;
}

/** Methods that are given an id take any text: one that is none names no file. */
export class StoredFiles {
  readonly #store: ObjectStore;
  readonly #records: TenantRecords<FileObject>;
  readonly #now: () => number;

  /** @param now Milliseconds since 1970. */
  constructor(store: ObjectStore, now: () => number) {
    this.#store = store;
    this.#records = new TenantRecords(store, "files", fileObject);
    this.#now = now;
  }

  /** Of all files of all tenants. */
  async totalBytes(): Promise<number> {
    return this.#store.measure("contents/");
  }

  newId(): string {
    return createId("file", this.#now());
  }

  /**
   * The bytes of a file that is not there yet for anybody, until `publish`. Rejects with what `chunks` throws and leaves
   * nothing behind. Resolves to their number.
   */
  async receive(id: string, chunks: AsyncIterable<Uint8Array>): Promise<number> {
    return this.#store.write(contentKey(id), chunks);
  }

  /** Gives the file of `receive` up. */
  async discard(id: string): Promise<void> {
    await this.#store.delete(contentKey(id));
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
    return this.#records.list(tenantTag(tenant), page, (file) => purpose === null || file.purpose === purpose);
  }

  async read(tenant: string, id: string): Promise<(StoredObject & { readonly file: FileObject }) | null> {
    const file = await this.find(tenant, id);
    const content = file === null ? null : await this.#store.read(contentKey(id));
    return file === null || content === null ? null : { ...content, file };
  }

  /** False where there is none. */
  async delete(tenant: string, id: string): Promise<boolean> {
    if ((await this.find(tenant, id)) === null) return false;
    await this.#records.delete(tenantTag(tenant), id);
    await this.#store.delete(contentKey(id));
    return true;
  }
}

function contentKey(id: string): string {
  return `contents/${id}`;
}
