/** The memory available to this process. */
import { totalmem } from "node:os";
import { constrainedMemory } from "node:process";

import { containerLimits } from "./container-limits.ts";

/** The machine's memory, or the smallest limit of its containers. */
export function machineMemoryBytes(): number {
  const limit = constrainedMemory();
  return Math.min(totalmem(), containerLimits().memoryBytes, limit > 0 ? limit : Number.POSITIVE_INFINITY);
}
