/** Files that only ever appear whole: written under a name of their own, then renamed. */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";

const partialSuffix = ".partial";

/** A live writer touches its file at least this often; what is older by this much was left by one that died. */
const abandonedAfterMs = 60 * 60 * 1000;

/**
 * Calls `write` with a name beside `file` that no other process uses, then renames it to `file`, replacing what is
 * there. Where `write` throws, the temporary file is removed; a process killed meanwhile leaves one that nobody reads
 * and that a later call removes.
 */
export async function writeAtomically(file: string, write: (temporaryFile: string) => Promise<void>): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  const temporaryFile = `${file}.${randomUUID()}${partialSuffix}`;
  try {
    await write(temporaryFile);
    await flushToDisk(temporaryFile);
    await removeAbandoned(dirname(file), (await stat(temporaryFile)).mtimeMs - abandonedAfterMs);
    await rename(temporaryFile, file);
  } catch (error) {
    await rm(temporaryFile, { force: true });
    throw error;
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
