/** The memory available to this process. */
import { totalmem } from "node:os";
import { constrainedMemory } from "node:process";

/** The machine's memory, or the limit of its container. */
export function machineMemoryBytes(): number {
  const limit = constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}
