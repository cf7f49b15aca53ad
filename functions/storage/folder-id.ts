/** An id of a folder, equal on every machine that mounts it. */
import { randomUUID } from "node:crypto";
import { link, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { makeFolder } from "./make-folder.ts";
import { StorageError } from "./object-store.ts";

/** The first caller creates it. Throws StorageError. */
export async function folderId(folder: string): Promise<string> {
  const path = join(folder, ".id");
  const proposal = `${path}-${randomUUID()}`;
  try {
    await makeFolder(folder, 0o700);
    await writeFile(proposal, randomUUID());
    // Unlike a rename, a link never replaces another process's file.
    await link(proposal, path).catch(ignoreExisting);
    await rm(proposal);
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new StorageError("Naming the folder", cause);
  }
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== "EEXIST") throw error;
}
