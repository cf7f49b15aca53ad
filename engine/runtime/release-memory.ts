/** Gives memory that is needed no more, or not now, back to the system. */
import { platform } from "node:os";
import koffi from "koffi";
import { releaseRunMemory } from "./session.ts";

type TrimHeap = (numBytesToKeep: number) => number;

/** Undefined until it is looked up; null where the C library has no such call. */
let trimHeap: TrimHeap | null | undefined;

/**
 * For the whole process, to be called once its sessions are loaded: blocks that were freed, and that the C library keeps
 * for the threads that allocated them, go back. Does nothing where the C library has no such call.
 */
export function releaseFreedMemory(): void {
  if (trimHeap === undefined) trimHeap = findTrimHeap();
  trimHeap?.(0);
}

/**
 * For a thread with nothing to run: also what its sessions keep for their next runs, tens of megabytes after long
 * prompts. Does nothing where none has run since the last call. Takes 1 to 3 ms, and a few percent of the next prompt's
 * time, as its pages are given out anew.
 */
export function releaseIdleMemory(): void {
  if (releaseRunMemory()) releaseFreedMemory();
}

function findTrimHeap(): TrimHeap | null {
  if (platform() !== "linux") return null;
  try {
    return koffi.load(null).func("malloc_trim", "int", ["size_t"]);
  } catch {
    // Not the GNU C library: others give back what is freed by themselves.
    return null;
  }
}
