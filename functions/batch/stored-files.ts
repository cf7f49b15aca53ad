/** The files of the Files API: uploads for batches and prompts, and results of batches. */
import { z } from "zod";

import { writeText } from "../storage/object-store.ts";
import type { ObjectStore, StoredObject, StoredSize } from "../storage/object-store.ts";
import { DamagedRecordError } from "./damaged-records.ts";
import type { DamageLog } from "./damaged-records.ts";
import { createdAtMs, createId, isId } from "./ids.ts";
import { TenantRecords, tenantTag } from "./tenant-records.ts";
import type { Page, PageOptions } from "./tenant-records.ts";

/** Of pictures and documents for prompts. OpenAI's clients send any of them. */
export const promptPurposes = ["user_data", "vision", "assistants"] as const;
export const purposes = ["batch", ...promptPurposes, "batch_output"] as const;
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
  /** Seconds since 1970. Stored if the file has a lifetime of its own; shown if it ever expires. */
  expires_at: z.int().optional(),
});
export type FileObject = z.output<typeof fileObject>;

/** A file whose bytes are stored. */
export interface ReceivedFile {
  readonly id: string;
  readonly numBytes: number;
  readonly filename: string;
  readonly purpose: FilePurpose;
  /** Lifetime of its own; the retention may end it earlier. */
  readonly expiresAfterSeconds?: number | null;
}

/** A file that may have expired. */
export interface DueFile {
  readonly id: string;
  readonly tag: string;
  /** Its entry among the files with a lifetime of their own; null if it is due by the retention. */
  readonly entryKey: string | null;
}

export interface StoredFilesOptions {
  readonly store: ObjectStore;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Lifetime of all files; null means until they are deleted. */
  readonly retentionMs: number | null;
  readonly damage: DamageLog;
}

const EXPIRY_DIGITS = 12;

/**
 * A file is up to three objects: its bytes in `contents/`, its record in `files/`, and, if it has a lifetime of its own,
 * an empty entry in `expiries/` whose name starts with the time, so that a list of names shows which files are due.
 *
 * An expired file does not exist for clients, whether or not it has been removed yet. Methods that take an id accept
 * any text. Those that read a record throw DamagedRecordError if it is damaged.
 */
export class StoredFiles {
  readonly #store: ObjectStore;
  readonly #records: TenantRecords<FileObject>;
  readonly #now: () => number;
  readonly #retentionMs: number | null;

  constructor({ store, now, retentionMs, damage }: StoredFilesOptions) {
    this.#store = store;
    this.#retentionMs = retentionMs;
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

  async publish(
    tenant: string,
    { id, numBytes, filename, purpose, expiresAfterSeconds = null }: ReceivedFile,
  ): Promise<FileObject> {
    const createdAt = Math.floor(this.#now() / 1000);
    const file: FileObject = {
      id,
      object: "file",
      bytes: numBytes,
      created_at: createdAt,
      filename,
      purpose,
      status: "processed",
      ...(expiresAfterSeconds !== null && { expires_at: createdAt + expiresAfterSeconds }),
    };
    const tag = tenantTag(tenant);
    // First, because a file without its entry would outlive its time.
    if (file.expires_at !== undefined) await writeText(this.#store, entryKey(file.expires_at, tag, id), "");
    await this.#records.write(tag, id, file);
    return this.#shown(file);
  }

  async find(tenant: string, id: string): Promise<FileObject | null> {
    const file = await this.#findStored(tenant, id);
    return file === null || this.#hasExpired(file, this.#now()) ? null : this.#shown(file);
  }

  /** Whether a file with this id, which may have been removed since, has certainly expired. */
  async hasExpired(tenant: string, id: string): Promise<boolean> {
    if (!isId("file", id)) return false;
    if (this.#isPastRetention(createdAtMs("file", id), this.#now())) return true;
    const file = await this.#findStored(tenant, id);
    return file !== null && this.#hasExpired(file, this.#now());
  }

  async list(tenant: string, page: PageOptions, purpose: FilePurpose | null): Promise<Page<FileObject>> {
    const tag = tenantTag(tenant);
    return this.#records.list(tag, page, async (id) => {
      const file = await this.#records.read(tag, id);
      if (file === null || this.#hasExpired(file, this.#now())) return null;
      return purpose === null || file.purpose === purpose ? this.#shown(file) : null;
    });
  }

  async read(tenant: string, id: string): Promise<(StoredObject & { readonly file: FileObject }) | null> {
    const file = await this.find(tenant, id);
    const content = file === null ? null : await this.readContent(file);
    return file === null || content === null ? null : { ...content, file };
  }

  /** The bytes of a file that was just found; null if it has been removed since. */
  async readContent({ id }: Pick<FileObject, "id">): Promise<StoredObject | null> {
    return this.#store.read(contentKey(id));
  }

  /** The bytes of a batch's input, also after it has expired: the batch was accepted before. */
  async readInput(tenant: string, id: string): Promise<StoredObject | null> {
    return (await this.#findStored(tenant, id)) === null ? null : this.#store.read(contentKey(id));
  }

  /** False if there is no such file. A damaged record is deleted like any other. */
  async delete(tenant: string, id: string): Promise<boolean> {
    const file = await this.find(tenant, id).catch(asDamaged);
    if (file === null) return false;
    await this.#remove(tenantTag(tenant), id);
    return true;
  }

  /** Files that may have expired before `timeMs`, found by names alone. */
  async listDue(timeMs: number): Promise<readonly DueFile[]> {
    const due: DueFile[] = [];
    for (const key of await this.#store.list("expiries/")) {
      const [seconds = "", tag = "", id = ""] = key.slice("expiries/".length).split(".");
      if (Number.parseInt(seconds, 16) * 1000 > timeMs) break;
      if (isId("file", id)) due.push({ tag, id, entryKey: key });
    }
    if (this.#retentionMs === null) return due;
    for (const key of await this.#store.list("files/")) {
      const [tag = "", id = ""] = key.slice("files/".length).split(".");
      // A file may be younger than its id: those of results are chosen when the batch is created.
      if (isId("file", id) && this.#isPastRetention(createdAtMs("file", id), timeMs)) {
        due.push({ tag, id, entryKey: null });
      }
    }
    return due;
  }

  /** Removes a file that has expired before `timeMs`; returns whether it has. */
  async removeDue({ tag, id, entryKey: dueKey }: DueFile, timeMs: number): Promise<boolean> {
    const file = await this.#records.read(tag, id).catch(asDamaged);
    const isExpired = file === null || file === "damaged" || this.#hasExpired(file, timeMs);
    if (isExpired) await this.#remove(tag, id);
    // The entry of a file that was published again later names an earlier time.
    if (dueKey !== null) await this.#store.delete(dueKey);
    return isExpired && file !== null;
  }

  /** Ids of stored bytes without a record, of uploads and results that were never published. */
  async listUnpublished(): Promise<readonly string[]> {
    const contents = await this.#store.list("contents/");
    const published = new Set((await this.#store.list("files/")).map((key) => key.split(".")[1]));
    const ids = contents.map((key) => key.slice("contents/".length));
    return ids.filter((id) => isId("file", id) && !published.has(id));
  }

  async #findStored(tenant: string, id: string): Promise<FileObject | null> {
    return isId("file", id) ? this.#records.read(tenantTag(tenant), id) : null;
  }

  /** The record is deleted after the bytes, which could no longer be found without it. */
  async #remove(tag: string, id: string): Promise<void> {
    const file = await this.#records.read(tag, id).catch(asDamaged);
    await this.#store.delete(contentKey(id));
    await this.#records.delete(tag, id);
    if (file === null || file === "damaged" || file.expires_at === undefined) return;
    await this.#store.delete(entryKey(file.expires_at, tag, id));
  }

  #isPastRetention(fromMs: number, timeMs: number): boolean {
    return this.#retentionMs !== null && fromMs + this.#retentionMs <= timeMs;
  }

  #hasExpired({ created_at: createdAt, expires_at: expiresAt }: FileObject, timeMs: number): boolean {
    return this.#isPastRetention(createdAt * 1000, timeMs) || (expiresAt !== undefined && expiresAt * 1000 <= timeMs);
  }

  #shown(file: FileObject): FileObject {
    if (this.#retentionMs === null) return file;
    const latest = file.created_at + Math.floor(this.#retentionMs / 1000);
    return { ...file, expires_at: Math.min(file.expires_at ?? latest, latest) };
  }
}

function asDamaged(error: unknown): "damaged" {
  if (error instanceof DamagedRecordError) return "damaged";
  throw error;
}

function entryKey(expiresAt: number, tag: string, id: string): string {
  return `expiries/${expiresAt.toString(16).padStart(EXPIRY_DIGITS, "0")}.${tag}.${id}`;
}

function contentKey(id: string): string {
  return `contents/${id}`;
}
