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

/**
 * The memory that one copy of the model may use: that of the weights, which all copies share, and an equal part of the
 * rest. Each copy loads a ready-made export for itself, so there all memory is divided.
 */
export function memoryShareBytes(
  { dataParallelSize }: Pick<EngineConfig, "dataParallelSize">,
  { form, weightBytes }: { readonly form?: "in-place" | "export"; readonly weightBytes: number },
): number {
  const sharedBytes = form === "export" ? 0 : Math.min(weightBytes, machineMemoryBytes());
  return sharedBytes + Math.floor((machineMemoryBytes() - sharedBytes) / (dataParallelSize ?? 1));
}
