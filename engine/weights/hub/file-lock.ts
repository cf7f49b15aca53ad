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

type TryLock = (fileDescriptor: number) => boolean;

/** Undefined until looked up. */
let foundTryLock: TryLock | undefined;

/**
 * Waits until no other process holds the lock. The system releases it when the holder ends, however it ends.
 *
 * Some network file systems grant every lock. A lock therefore saves work, and nothing may rely on it for correctness.
 */
export async function lockFile(path: string, signal: AbortSignal): Promise<AsyncDisposable> {
  const tryLock = (foundTryLock ??= findTryLock());
  await makeFolder(dirname(path));
  const handle = await open(path, "a");
  try {
    while (!tryLock(handle.fd)) await delay(POLL_MS, undefined, { signal });
  } catch (error) {
    await handle.close();
    throw error;
  }
  return { [Symbol.asyncDispose]: () => handle.close() };
}

/** On Windows, downloads go on without locks. */
function findTryLock(): TryLock {
  if (platform() === "win32") return () => true;
  const flock: (fileDescriptor: number, operation: number) => number = koffi
    .load(null)
    .func("flock", "int", ["int", "int"]);
  return (fileDescriptor) => flock(fileDescriptor, EXCLUSIVE_WITHOUT_WAITING) === 0;
}
