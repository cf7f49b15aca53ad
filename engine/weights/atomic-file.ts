/** Writes files of the cache folder atomically: under a temporary name, then renamed. */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";

import { EngineError } from "../contract/errors.ts";
import { hasReliableLocks, tryLock } from "./flock.ts";
import { systemReason } from "./regular-file.ts";

const partialSuffix = ".partial";

/**
 * A live writer touches its file more often than this. Older files were left behind by dead writers, also where locks do
 * not tell.
 */
const ABANDONED_AFTER_MS = 60 * 60 * 1000;

/**
 * Calls `write` with a unique temporary name next to `file`, then renames it to `file`, replacing an existing file. If
 * `write` throws, the temporary file is removed. If the process is killed, the temporary file is never read, and the
 * next call for the folder removes it before it writes.
 *
 * @param write Called with an empty file that exists.
 * @param contents Description of the content, for the error.
 * @throws EngineError `invalid_configuration` for errors of the file system, otherwise the error of `write`.
 */
export async function writeAtomically(
  file: string,
  contents: string,
  write: (temporaryFile: string) => Promise<void>,
): Promise<void> {
  const temporaryFile = `${file}.${randomUUID()}${partialSuffix}`;
  try {
    await makeFolder(dirname(file));
    await removeUnlocked(dirname(file));
    await using handle = await open(temporaryFile, "wx");
    tryLock(handle.fd);
    await write(temporaryFile);
    await flushToDisk(temporaryFile);
    await removeAbandoned(dirname(file), (await stat(temporaryFile)).mtimeMs - ABANDONED_AFTER_MS);
    await rename(temporaryFile, file);
  } catch (error) {
    await rm(temporaryFile, { force: true }).catch(() => undefined);
    if (!isSystemError(error)) throw error;
    const message = `The cache folder cannot store ${contents} (${systemReason(error)}).`;
    throw new EngineError("invalid_configuration", message, { cause: error, setting: "cacheFolder" });
  }
}

/** Replaces Node's `recursive`, which never returns below a folder that rejects new folders with ENOENT, like /proc. */
export async function makeFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder);
  } catch (error) {
    if (isCode(error, "EEXIST") && (await stat(folder)).isDirectory()) return;
    const parent = dirname(folder);
    if (!isCode(error, "ENOENT") || parent === folder) throw error;
    await makeFolder(parent);
    await mkdir(folder).catch((again: unknown) => {
      // Another process may have created it since.
      if (!isCode(again, "EEXIST")) throw again;
    });
  }
}

/**
 * Without this, the rename could reach the disk before the bytes, and a power failure would leave an incomplete file.
 */
async function flushToDisk(file: string): Promise<void> {
  const handle = await open(file, "r+");
  try {
    await handle.datasync();
  } finally {
    await handle.close();
  }
}

/**
 * Removes the temporary files of writers that were killed, whose bytes the next writer may need. They have no lock any
 * more; those without bytes may have none yet.
 */
export async function removeUnlocked(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.endsWith(partialSuffix));
  if (names.length === 0 || !(await hasReliableLocks(folder))) return;
  for (const name of names) {
    const handle = await open(join(folder, name), "r").catch(() => null);
    if (handle === null) continue;
    try {
      if ((await handle.stat()).size === 0 || tryLock(handle.fd) !== "locked") continue;
      await rm(join(folder, name), { force: true });
    } finally {
      await handle.close();
    }
  }
}

async function removeAbandoned(folder: string, olderThanMs: number): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!name.endsWith(partialSuffix)) continue;
    const file = join(folder, name);
    const stats = await stat(file).catch(() => null);
    if (stats !== null && stats.mtimeMs < olderThanMs) await rm(file, { force: true });
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

/** Checks the message, which is all that remains of an error from a thread. */
export function isSystemError(error: unknown): error is Error {
  return error instanceof Error && /^E[A-Z0-9]+: /.test(error.message);
}
