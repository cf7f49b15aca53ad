/** Stores bytes under keys: uploaded files, results, and records of jobs. */

export interface StoredObject {
  readonly numBytes: number;
  /** Can be read once. To stop early, end the iteration. */
  readonly chunks: AsyncIterable<Uint8Array>;
}

/** What objects take together. */
export interface StoredSize {
  readonly numObjects: number;
  readonly numBytes: number;
}

/** Keys are `folder/name`. Errors of the store itself are StorageErrors. */
export interface ObjectStore {
  /**
   * The object appears as a whole when `chunks` has ended, or not at all, and replaces an object with the same key.
   * Resolves to its length in bytes. Rejects with the errors of `chunks` and then leaves nothing behind.
   */
  write(key: string, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<number>;
  /** Null if it does not exist. */
  read(key: string): Promise<StoredObject | null>;
  /** Does nothing if it does not exist. */
  delete(key: string): Promise<void>;
  /** All keys that start with `prefix`, which contains the whole folder, in character order. */
  list(prefix: string): Promise<readonly string[]>;
  /** Of all objects whose keys start with `prefix`. */
  measure(prefix: string): Promise<StoredSize>;
  close(): Promise<void>;
}

/** The store failed, not the request: its disk is full, or its server does not answer. */
export class StorageError extends Error {
  override readonly name = "StorageError";

  /** Whether the same call may succeed later although no one changes anything: its server does not answer, or is busy. */
  readonly isOutage: boolean;

  constructor(action: string, cause: unknown, { isOutage = false } = {}) {
    super(`${action} failed: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    this.isOutage = isOutage;
  }

  /** Whether the disk, or the user's quota of it, is full. */
  get isDiskFull(): boolean {
    const { cause } = this;
    return cause instanceof Error && "code" in cause && (cause.code === "ENOSPC" || cause.code === "EDQUOT");
  }
}

/** Excludes paths that lead elsewhere and hidden files. */
const keyPattern = /^[a-z]+\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/;

/** Throws for an invalid key, which its origin must have rejected. */
export function checkKey(key: string): void {
  if (!keyPattern.test(key)) throw new Error(`${JSON.stringify(key.slice(0, 100))} is not a valid key of the store.`);
}

/** Like `checkKey`, for prefixes. */
export function splitPrefix(prefix: string): { readonly folder: string; readonly start: string } {
  const match = /^([a-z]+)\/([A-Za-z0-9_-][A-Za-z0-9._-]*)?$/.exec(prefix);
  if (match === null) throw new Error(`${JSON.stringify(prefix.slice(0, 100))} is not a valid prefix of keys.`);
  return { folder: match[1]!, start: match[2] ?? "" };
}

/** Null if it does not exist. */
export async function readText(store: ObjectStore, key: string): Promise<string | null> {
  const object = await store.read(key);
  if (object === null) return null;
  const chunks: Uint8Array[] = [];
  for await (const chunk of object.chunks) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

export async function writeText(store: ObjectStore, key: string, text: string): Promise<void> {
  await store.write(key, [Buffer.from(text)]);
}
