/** Returns memory that is not needed, now or at all, to the system. */
import { platform } from "node:os";
import koffi from "koffi";

import { releaseRunMemory } from "./session.ts";

type TrimHeap = (numBytesToKeep: number) => number;

/** Undefined until looked up; null if the C library lacks the call. */
let trimHeap: TrimHeap | null | undefined;

/**
 * Returns freed blocks that the C library keeps for the threads that allocated them. Acts on the whole process; call it
 * after loading sessions. Does nothing if the C library lacks the call.
 */
export function releaseFreedMemory(): void {
  if (trimHeap === undefined) trimHeap = findTrimHeap();
  trimHeap?.(0);
}

/**
 * Also returns memory that sessions keep for their next runs, tens of megabytes after long prompts. For a thread
 * without work. Does nothing if no session ran since the last call. Takes 1 to 3 ms, and adds a few percent to the next
 * prompt, whose pages must be allocated again.
 */
export function releaseIdleMemory(): void {
  if (releaseRunMemory()) releaseFreedMemory();
}

function findTrimHeap(): TrimHeap | null {
  if (platform() !== "linux") return null;
  try {
    return koffi.load(null).func("malloc_trim", "int", ["size_t"]);
  } catch {
    // Other C libraries than GNU's return freed memory by themselves.
    return null;
  }
}
