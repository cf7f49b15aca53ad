/**
 * The device whose memory is measured while a model loads: a GPU. What its libraries and the runs take cannot be
 * calculated beforehand.
 */
import type { DeviceName, EngineConfig } from "../contract/config.ts";
import type { DeviceWeights } from "../kv/memory-plan.ts";
import type { BuiltModel } from "../models/built-model.ts";
import { cudaMemoryBytes } from "../runtime/cuda-memory.ts";
import type { CudaMemory } from "../runtime/cuda-memory.ts";
import { visionDeviceOf } from "./session-options.ts";

export interface MeasuredDevice {
  readonly name: DeviceName;
  /** At the time of the call. */
  readonly memoryBytes: () => CudaMemory;
}

interface Parts {
  readonly config: EngineConfig;
  readonly model: BuiltModel;
}

/** Null if no part of the model computes on cuda. */
export function measuredDeviceOf({ config, model }: Parts): MeasuredDevice | null {
  const encodesOnCuda = model.visionEncoder !== null && visionDeviceOf(config, model) === "cuda";
  if (config.device !== "cuda" && !encodesOnCuda) return null;
  return { name: "cuda", memoryBytes: () => cudaMemoryBytes(config.deviceId) };
}

export function weightsOn({ name }: MeasuredDevice, { config, model }: Parts): DeviceWeights {
  const { decoder, visionEncoder } = model;
  return {
    decoder: config.device === name ? decoder.weightBytes : 0,
    visionEncoder: visionEncoder !== null && visionDeviceOf(config, model) === name ? visionEncoder.weightBytes : 0,
  };
}

/** Infinity if the device cannot be asked. Loading a session then says why. */
export function freeBytesOf({ memoryBytes }: MeasuredDevice): number {
  try {
    return memoryBytes().freeBytes;
  } catch {
    return Infinity;
  }
}
