/** The memory available to this process. */
import { totalmem } from "node:os";
import { constrainedMemory } from "node:process";

import type { EngineConfig } from "../contract/config.ts";
import { containerLimits } from "./container-limits.ts";

/** The machine's memory, or the smallest limit of its containers. */
export function machineMemoryBytes(): number {
  const limit = constrainedMemory();
  return Math.min(totalmem(), containerLimits().memoryBytes, limit > 0 ? limit : Number.POSITIVE_INFINITY);
}

/** What each copy of the model has of it. */
export function memoryShareBytes({ dataParallelSize = 1 }: Pick<EngineConfig, "dataParallelSize">): number {
  return Math.floor(machineMemoryBytes() / dataParallelSize);
}
