/** Gives memory that only loading needed back to the system. */
import { platform } from "node:os";
import koffi from "koffi";

/**
 * For the whole process, to be called once its sessions are loaded: blocks that were freed, and that the C library keeps
 * for the threads that allocated them, go back. Does nothing where the C library has no such call.
 */
export function releaseFreedMemory(): void {
  if (platform() !== "linux") return;
  try {
    koffi.load(null).func("malloc_trim", "int", ["size_t"])(0);
  } catch {
    // Not the GNU C library: others give back what is freed by themselves.
  }
}
