/** A lock by name among all processes that share a folder. */
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import koffi from "koffi";

import { makeFolderSync } from "./make-folder.ts";

/** From sys/file.h; the same on Linux, macOS and the BSDs. */
const LOCK_EX = 2;
const LOCK_NB = 4;

/** The C library to which Node itself is linked. */
const flock = koffi.load(null).func("int flock(int fd, int operation)") as (file: number, operation: number) => number;

export interface FolderLock {
  release(): void;
}

/**
 * Returns null if another process holds the lock. Uses the kernel's flock, which is released whenever its holder ends,
 * for any reason. Throws if the folder is not writable.
 */
export function tryLockFolder(folder: string, name: string): FolderLock | null {
  makeFolderSync(folder, 0o700);
  const file = openSync(join(folder, `.${name}.lock`), "a", 0o600);
  if (flock(file, LOCK_EX | LOCK_NB) !== 0) {
    closeSync(file);
    return null;
  }
  return { release: () => closeSync(file) };
}
