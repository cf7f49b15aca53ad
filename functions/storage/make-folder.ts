/**
 * Makes folders with their parents. Node's own `recursive` never returns below a folder that rejects new folders with
 * ENOENT, such as /proc, and so keeps one of the few threads for files for ever.
 */
import { mkdirSync, statSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";

/** Rejects with the system's error. */
export async function makeFolder(folder: string, mode: number): Promise<void> {
  try {
    await mkdir(folder, mode);
  } catch (error) {
    if (codeOf(error) === "EEXIST" && (await stat(folder)).isDirectory()) return;
    const parent = parentToMake(folder, error);
    await makeFolder(parent, mode);
    await mkdir(folder, mode).catch(ignoreExisting);
  }
}

/** Throws the system's error. */
export function makeFolderSync(folder: string, mode: number): void {
  try {
    mkdirSync(folder, mode);
  } catch (error) {
    if (codeOf(error) === "EEXIST" && statSync(folder).isDirectory()) return;
    makeFolderSync(parentToMake(folder, error), mode);
    try {
      mkdirSync(folder, mode);
    } catch (again) {
      ignoreExisting(again);
    }
  }
}

/** Throws `error` if a parent would not help. */
function parentToMake(folder: string, error: unknown): string {
  const parent = dirname(folder);
  if (codeOf(error) !== "ENOENT" || parent === folder) throw error;
  return parent;
}

/** Another process may have made the folder since. */
function ignoreExisting(error: unknown): void {
  if (codeOf(error) !== "EEXIST") throw error;
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : null;
}
