/** Files that only ever appear whole: written under a name of their own, then renamed. */
import { randomUUID } from "node:crypto";
import { mkdir, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Calls `write` with a name beside `file` that no other process uses, then renames it to `file`, replacing what is
 * there. Where `write` throws, the temporary file is removed; a process killed meanwhile leaves one that nobody reads.
 */
export async function writeAtomically(file: string, write: (temporaryFile: string) => Promise<void>): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  const temporaryFile = `${file}.${randomUUID()}.partial`;
  try {
    await write(temporaryFile);
    await rename(temporaryFile, file);
  } catch (error) {
    await rm(temporaryFile, { force: true });
    throw error;
  }
}
