/** flock(2): locks on open files, which the system releases when their holder ends, however it ends. */
import { statfs } from "node:fs/promises";
import { constants, platform } from "node:os";
import koffi from "koffi";

/** LOCK_EX and LOCK_NB of sys/file.h, equal on Linux and macOS. */
const EXCLUSIVE_WITHOUT_WAITING = 2 | 4;

/** Linux: the f_type of ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS and F2FS. On these, only this machine has files open. */
const localFileSystems: ReadonlySet<number> = new Set([
  0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010,
]);

/** `unsupported`: the file system or the system has no such locks. */
export type LockOutcome = "locked" | "held by another" | "unsupported";

type Flock = (fileDescriptor: number, operation: number) => number;

/** Undefined until looked up; null on Windows. */
let foundFlock: Flock | null | undefined;

/** Without waiting, which would block the event loop in the kernel. The lock ends when the descriptor is closed. */
export function tryLock(fileDescriptor: number): LockOutcome {
  foundFlock ??= platform() === "win32" ? null : (koffi.load(null).func("flock", "int", ["int", "int"]) as Flock);
  if (foundFlock === null) return "unsupported";
  if (foundFlock(fileDescriptor, EXCLUSIVE_WITHOUT_WAITING) === 0) return "locked";
  return koffi.errno() === constants.errno.EWOULDBLOCK ? "held by another" : "unsupported";
}

/**
 * Whether a lock that is free in this folder has no holder anywhere. Some network file systems grant every lock, or keep
 * the locks of each machine apart.
 */
export async function hasReliableLocks(folder: string): Promise<boolean> {
  return platform() === "linux" && localFileSystems.has((await statfs(folder)).type);
}
