/** Several copies of a model in one engine, among which requests are divided. */
import type { EngineConfig } from "./config.ts";
import { EngineError } from "./errors.ts";

export const MAX_DATA_PARALLEL_SIZE = 64;

export type CopySettings = Pick<EngineConfig, "device" | "dataParallelSize">;

/** @throws EngineError `invalid_configuration` if the device computes only one copy. */
export function requireDeviceForCopies({ device, dataParallelSize = 1 }: CopySettings): void {
  if (device !== "webgpu" || dataParallelSize === 1) return;
  throw new EngineError(
    "invalid_configuration",
    `${dataParallelSize} copies of the model run on cpu and cuda, not on webgpu.`,
    { setting: "dataParallelSize" },
  );
}

/** Copies that share the processor and the memory of the machine: one if each has a GPU of its own. */
export function numCopiesOnHost({ device, dataParallelSize = 1 }: CopySettings): number {
  return device === "cpu" ? dataParallelSize : 1;
}

/** The largest number of sequences that run together in all copies. */
export function totalSequences({
  maxNumSequences,
  dataParallelSize = 1,
}: Pick<EngineConfig, "maxNumSequences" | "dataParallelSize">): number {
  return maxNumSequences * dataParallelSize;
}
