/** Files of the cache folder that only ever appear whole: written under a name of their own, then renamed. */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";

import { EngineError } from "../contract/errors.ts";
import { systemReason } from "./regular-file.ts";

const partialSuffix = ".partial";

/** A live writer touches its file at least this often; what is older by this much was left by one that died. */
const abandonedAfterMs = 60 * 60 * 1000;

/**
 * Calls `write` with a name beside `file` that no other process uses, then renames it to `file`, replacing what is
 * there. Where `write` throws, the temporary file is removed; a process killed meanwhile leaves one that nobody reads
 * and that a later call removes.
 *
 * @param contents What the file holds, for the error.
 * @throws EngineError `invalid_configuration` where the system refuses; else what `write` throws.
 */
export async function writeAtomically(
  file: string,
  contents: string,
  write: (temporaryFile: string) => Promise<void>,
): Promise<void> {
  const temporaryFile = `${file}.${randomUUID()}${partialSuffix}`;
  try {
    await makeFolder(dirname(file));
    await write(temporaryFile);
    await flushToDisk(temporaryFile);
    await removeAbandoned(dirname(file), (await stat(temporaryFile)).mtimeMs - abandonedAfterMs);
    await rename(temporaryFile, file);
  } catch (error) {
    await rm(temporaryFile, { force: true }).catch(() => undefined);
    if (!isSystemError(error)) throw error;
    const message = `The cache folder cannot store ${contents} (${systemReason(error)}).`;
    throw new EngineError("invalid_configuration", message, { cause: error, setting: "cacheFolder" });
  }
}

/** Node's own `recursive` never returns where a folder takes none, as /proc does, and says that it is not there. */
async function makeFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder);
  } catch (error) {
    if (isCode(error, "EEXIST") && (await stat(folder)).isDirectory()) return;
    const parent = dirname(folder);
    if (!isCode(error, "ENOENT") || parent === folder) throw error;
    await makeFolder(parent);
    await mkdir(folder).catch((again: unknown) => {
      // Another process may have made it meanwhile.
      if (!isCode(again, "EEXIST")) throw again;
    });
  }
}

/** The rename may reach the disk before the bytes do; a machine that loses power between the two must not lie. */
async function flushToDisk(file: string): Promise<void> {
  const handle = await open(file, "r+");
  try {
    await handle.datasync();
  } finally {
    await handle.close();
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

/** By the message, which is all that is left of an error from a thread. */
function isSystemError(error: unknown): error is Error {
  return error instanceof Error && /^E[A-Z0-9]+: /.test(error.message);
}
