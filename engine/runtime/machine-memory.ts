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
 * What each copy of the model has of it: the weights, which all copies share, and its part of the rest. A ready-made export
 * is loaded by each copy for itself.
 */
export function memoryShareBytes(
  { dataParallelSize }: Pick<EngineConfig, "dataParallelSize">,
  { form, weightBytes }: { readonly form?: "in-place" | "export"; readonly weightBytes: number },
): number {
  const sharedBytes = form === "export" ? 0 : Math.min(weightBytes, machineMemoryBytes());
  return sharedBytes + Math.floor((machineMemoryBytes() - sharedBytes) / (dataParallelSize ?? 1));
}
