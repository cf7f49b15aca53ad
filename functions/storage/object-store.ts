/** Bytes under keys: what uploaded files, results and the records of jobs are kept in. */

export interface StoredObject {
  readonly numBytes: number;
  /** To be read once; whoever stops early ends the iteration. */
  readonly chunks: AsyncIterable<Uint8Array>;
}

/** Keys are `folder/name`. Whatever the store itself refuses is a StorageError. */
export interface ObjectStore {
  /**
   * The object appears whole, when `chunks` has ended, or not at all; it takes the place of one with its key. Resolves
   * to its length in bytes. Rejects with what `chunks` throws, and leaves nothing behind.
   */
  write(key: string, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<number>;
  /** Null where there is none. */
  read(key: string): Promise<StoredObject | null>;
  /** Does nothing where there is none. */
  delete(key: string): Promise<void>;
  /** All keys that begin with `prefix`, which holds the whole folder, in the order of their characters. */
  list(prefix: string): Promise<readonly string[]>;
  /** Length of all objects whose keys begin with `prefix`, together. */
  measure(prefix: string): Promise<number>;
  close(): Promise<void>;
}

/** The store is at fault, not the request: its disk is full, its server does not answer. */
export class StorageError extends Error {
  override readonly name = "StorageError";

  constructor(action: string, cause: unknown) {
    super(`${action} failed: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** Neither a path that leads elsewhere nor a hidden file. */
const keyPattern = /^[a-z]+\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/;

/** Throws for a key that is none: such a key must have been refused where it came from. */
export function checkKey(key: string): void {
  if (!keyPattern.test(key)) throw new Error(`${JSON.stringify(key.slice(0, 100))} is not a valid key of the store.`);
}

/** For prefixes as for keys. */
export function splitPrefix(prefix: string): { readonly folder: string; readonly start: string } {
  const match = /^([a-z]+)\/([A-Za-z0-9_-][A-Za-z0-9._-]*)?$/.exec(prefix);
  if (match === null) throw new Error(`${JSON.stringify(prefix.slice(0, 100))} is not a valid prefix of keys.`);
  return { folder: match[1], start: match[2] ?? "" };
}

/** Null where there is none. */
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
