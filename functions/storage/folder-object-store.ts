/** A local folder as an object store. */
import { randomUUID } from "node:crypto";
import { open, readdir, rename, rm, stat } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { basename, join } from "node:path";

import { makeFolder } from "./make-folder.ts";
import { checkKey, splitPrefix, StorageError } from "./object-store.ts";
import type { ObjectStore } from "./object-store.ts";

/** Requests and answers are private: other users of the machine have no access. */
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;
/** Not a valid start of a key, so files left behind by a killed process are never listed. */
const temporaryPrefix = ".writing-";

/** No write goes this long without adding a byte. */
const LEFTOVER_AGE_MS = 24 * 60 * 60 * 1000;

/** Removes unfinished files of killed processes. Never rejects, because they do no harm. */
export async function removeLeftovers(folder: string, nowMs: number): Promise<void> {
  const entries = await readdir(folder, { recursive: true }).catch(() => []);
  for (const entry of entries) {
    if (!basename(entry).startsWith(temporaryPrefix)) continue;
    const path = join(folder, entry);
    const stats = await stat(path).catch(() => null);
    if (stats !== null && nowMs - stats.mtimeMs > LEFTOVER_AGE_MS) await rm(path, { force: true }).catch(() => {});
  }
}

/** Several processes may share the folder. The first write creates it. */
export function createFolderObjectStore(folder: string): ObjectStore {
  /** Sizes of measured objects by prefix and key: an object that another process replaces keeps nearly its size. */
  const measured = new Map<string, Map<string, number>>();
  /** Of each measurement under way: the keys that were written meanwhile. */
  const writtenMeanwhile = new Set<Set<string>>();
  const forgetSize = (key: string): void => {
    for (const sizes of measured.values()) sizes.delete(key);
    for (const keys of writtenMeanwhile) keys.add(key);
  };
  const pathOf = (key: string): string => {
    checkKey(key);
    return join(folder, key);
  };

  async function list(prefix: string): Promise<readonly string[]> {
    const { folder: name, start } = splitPrefix(prefix);
    const names = await attempt("Listing", () => readdir(join(folder, name)).catch(nullIfMissing));
    return (names ?? [])
      .filter((entry) => entry.startsWith(start) && !entry.startsWith("."))
      .sort()
      .map((entry) => `${name}/${entry}`);
  }

  /** Null for an object that has just been deleted. */
  async function sizeOf(key: string): Promise<number | null> {
    const stats = await attempt("Measuring", () => stat(join(folder, key)).catch(nullIfMissing));
    return stats?.size ?? null;
  }

  return {
    async write(key, chunks) {
      const path = pathOf(key);
      const directory = join(path, "..");
      const temporary = join(directory, `${temporaryPrefix}${randomUUID()}`);
      let file: FileHandle | null = null;
      try {
        file = await attempt("Writing", async () => {
          await makeFolder(directory, FOLDER_MODE);
          return open(temporary, "wx", FILE_MODE);
        });
        const numBytes = await writeAll(file, chunks);
        await attempt("Writing", async () => {
          await file?.sync();
          await file?.close();
          await rename(temporary, path);
        });
        forgetSize(key);
        return numBytes;
      } catch (error) {
        await file?.close().catch(() => {});
        await rm(temporary, { force: true }).catch(() => {});
        throw error;
      }
    },

    async read(key) {
      const path = pathOf(key);
      return attempt("Reading", async () => {
        const file = await open(path).catch(nullIfMissing);
        if (file === null) return null;
        const { size } = await file.stat();
        return { numBytes: size, chunks: file.createReadStream() };
      });
    },

    async delete(key) {
      const path = pathOf(key);
      await attempt("Deleting", () => rm(path, { force: true }));
    },

    list,

    async measure(prefix) {
      const written = new Set<string>();
      writtenMeanwhile.add(written);
      try {
        const known = measured.get(prefix);
        const sizes = new Map<string, number>();
        for (const key of await list(prefix)) {
          const size = known?.get(key) ?? (await sizeOf(key));
          if (size !== null) sizes.set(key, size);
        }
        const size = { numObjects: sizes.size, numBytes: [...sizes.values()].reduce((sum, each) => sum + each, 0) };
        for (const key of written) sizes.delete(key);
        measured.set(prefix, sizes);
        return size;
      } finally {
        writtenMeanwhile.delete(written);
      }
    },

    async close() {},
  };
}

/** Errors of `chunks` are not errors of the store. */
async function writeAll(file: FileHandle, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<number> {
  let numBytes = 0;
  for await (const chunk of chunks) {
    await attempt("Writing", () => file.writeFile(chunk));
    numBytes += chunk.byteLength;
  }
  return numBytes;
}

async function attempt<Value>(action: string, work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (cause) {
    throw new StorageError(action, cause);
  }
}

function nullIfMissing(error: unknown): null {
  if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
  throw error;
}
