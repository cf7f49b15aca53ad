/** Takes from the decoding process, once it has loaded everything, what the decoding of a video does not need. */
import { readFileSync, writeFileSync } from "node:fs";
import { platform } from "node:os";
import koffi from "koffi";

/** Numbers of Linux on x64 and arm64. */
const RLIMIT_DATA = 2;
const RLIMIT_CORE = 4;
const RLIMIT_NOFILE = 7;

/**
 * On Linux: no further file or connection can be opened, and memory beyond the limit is not allocated, so that a video
 * ends this process rather than others of the container. Elsewhere, does nothing.
 *
 * @param maxMemoryBytes Memory that this process may come to write to, beyond what it has now: heaps, stacks and private
 *   mappings.
 */
export function confineProcess(maxMemoryBytes: number): void {
  if (platform() !== "linux") return;
  try {
    // If memory runs out anyway, the kernel ends this process first.
    writeFileSync("/proc/self/oom_score_adj", "1000");
  } catch {
    // Some sandboxes have no such file.
  }
  const setLimit = koffi.load(null).func("setrlimit", "int", ["int", "void *"]);
  const limit = (resource: number, value: number): void => {
    // Soft and hard: the process cannot raise them again.
    setLimit(resource, new BigUint64Array([BigInt(value), BigInt(value)]));
  };
  const reserved = reservedBytes();
  if (reserved !== null) limit(RLIMIT_DATA, reserved + maxMemoryBytes);
  // A core file would hold a customer's video.
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, 0);
}

/**
 * Counted against the limit before the first video: over 1 GiB, most of which V8 has only reserved. Null where the system
 * does not say.
 */
function reservedBytes(): number | null {
  try {
    const kilobytes = /^VmData:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
    return kilobytes === undefined ? null : Number(kilobytes) * 1024;
  } catch {
    return null;
  }
}
