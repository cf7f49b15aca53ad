/** Locks between processes: flock(2) on the lock files of huggingface_hub, so that its downloads take part. */
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

import { makeFolder } from "../atomic-file.ts";
import { tryLock } from "../flock.ts";

/** Interval at which a lock that is held is tried again. */
const POLL_MS = 250;

/**
 * Waits until no other process holds the lock. The system releases it when the holder ends, however it ends.
 *
 * Some network file systems grant every lock. A lock therefore saves work, and nothing may rely on it for correctness.
 */
export async function lockFile(path: string, signal: AbortSignal): Promise<AsyncDisposable> {
  await makeFolder(dirname(path));
  const handle = await open(path, "a");
  try {
    // Where there are no locks, on Windows and on some network file systems, downloads go on without.
    while (tryLock(handle.fd) === "held by another") await delay(POLL_MS, undefined, { signal });
  } catch (error) {
    await handle.close();
    throw error;
  }
  return { [Symbol.asyncDispose]: () => handle.close() };
}
