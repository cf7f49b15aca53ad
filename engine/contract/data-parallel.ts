/** Several copies of a model in one engine, among which requests are divided. */
import type { EngineConfig } from "./config.ts";
import { EngineError } from "./errors.ts";

export const MAX_DATA_PARALLEL_SIZE = 64;

/**
 * With fewer sequences for each copy, one copy with the threads of all is faster than all copies: on two cores, 8 sequences
 * of the benches' model are as fast in one copy as in two, fewer of them 1.2 to 1.4 times as fast, and prompts 1.4 times.
 */
export const ENOUGH_SEQUENCES = 4;

/** @throws EngineError `invalid_configuration` if a part of the model computes on a device that has room for one copy. */
export function requireDeviceForCopies({
  device,
  visionDevice,
  projectorDevice,
  dataParallelSize,
}: Pick<EngineConfig, "device" | "visionDevice" | "projectorDevice" | "dataParallelSize">): void {
  const other = [device, visionDevice, projectorDevice].find((each) => each != null && each !== "cpu");
  if (other === undefined || dataParallelSize == null || dataParallelSize === 1) return;
  throw new EngineError(
    "invalid_configuration",
    `${dataParallelSize} copies of the model divide the cores of a cpu. On ${other}, an engine computes one: start an engine for each GPU.`,
    { setting: "dataParallelSize" },
  );
}

/** The largest number of sequences that run together in all copies. */
export function totalSequences({
  maxNumSequences,
  dataParallelSize,
}: Pick<EngineConfig, "maxNumSequences" | "dataParallelSize">): number {
  return maxNumSequences * (dataParallelSize ?? 1);
}
