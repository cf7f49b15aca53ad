/** Several copies of a model in one engine, among which requests are divided. */
import type { EngineConfig } from "./config.ts";
import { EngineError } from "./errors.ts";

export const MAX_DATA_PARALLEL_SIZE = 64;

/** @throws EngineError `invalid_configuration` if a part of the model computes on a device that has room for one copy. */
export function requireDeviceForCopies({
  device,
  visionDevice,
  projectorDevice,
  dataParallelSize = 1,
}: Pick<EngineConfig, "device" | "visionDevice" | "projectorDevice" | "dataParallelSize">): void {
  const other = [device, visionDevice, projectorDevice].find((each) => each != null && each !== "cpu");
  if (other === undefined || dataParallelSize === 1) return;
  throw new EngineError(
    "invalid_configuration",
    `${dataParallelSize} copies of the model divide the cores of a cpu. On ${other}, an engine computes one: start an engine for each GPU.`,
    { setting: "dataParallelSize" },
  );
}

/** The largest number of sequences that run together in all copies. */
export function totalSequences({
  maxNumSequences,
  dataParallelSize = 1,
}: Pick<EngineConfig, "maxNumSequences" | "dataParallelSize">): number {
  return maxNumSequences * dataParallelSize;
}
