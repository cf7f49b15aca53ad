/** Locks between processes: flock(2) on the lock files of huggingface_hub, so that its downloads take part. */
import { open } from "node:fs/promises";
import { platform } from "node:os";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import koffi from "koffi";

import { makeFolder } from "../atomic-file.ts";

/** LOCK_EX and LOCK_NB of sys/file.h, equal on Linux and macOS. */
const EXCLUSIVE_WITHOUT_WAITING = 2 | 4;

/** Waiting in the kernel would block the event loop. */
const POLL_MS = 250;

type Flock = (fileDescriptor: number, operation: number) => number;

/** Undefined until looked up; null on Windows, where downloads go on without locks. */
let flock: Flock | null | undefined;

/**
 * Waits until no other process holds the lock. The system releases it when the holder ends, however it ends.
 *
 * Some network file systems grant every lock. A lock therefore saves work, and nothing may rely on it for correctness.
 */
export async function lockFile(path: string, signal: AbortSignal): Promise<AsyncDisposable> {
  const tryLock = findFlock();
  await makeFolder(dirname(path));
  const handle = await open(path, "a");
  try {
    while (tryLock !== null && tryLock(handle.fd, EXCLUSIVE_WITHOUT_WAITING) !== 0) {
      await delay(POLL_MS, undefined, { signal });
    }
  } catch (error) {
    await handle.close();
    throw error;
  }
  return { [Symbol.asyncDispose]: () => handle.close() };
}

function findFlock(): Flock | null {
  if (flock === undefined) {
    flock = platform() === "win32" ? null : (koffi.load(null).func("flock", "int", ["int", "int"]) as Flock);
  }
  return flock;
}
