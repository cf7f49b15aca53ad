/** How much memory this process may come to use. */
import { totalmem } from "node:os";
import { constrainedMemory } from "node:process";

/** The machine's, or what its container is limited to. */
export function machineMemoryBytes(): number {
  const limit = constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}
