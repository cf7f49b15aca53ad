/** The self-check of the GPU, without a model. Imports its dependencies on demand, so that servers do not load them here. */
import type { EngineConfig } from "../contract/config.ts";
import { cudaDeviceIdOf } from "../contract/cuda-device-id.ts";
import { EngineError } from "../contract/errors.ts";
import type { CudaDevice } from "../runtime/cuda-driver.ts";

export type GpuInspection =
  | { readonly kind: "usable"; readonly device: CudaDevice }
  /** `reason` is one sentence that says what is missing, and what to do. */
  | { readonly kind: "unusable"; readonly reason: string };

/** Looks for the provider's libraries, the driver and the device, as a start does. Null if the settings want no NVIDIA GPU. */
export async function inspectGpu(
  config: Pick<EngineConfig, "device" | "visionDevice" | "deviceId">,
): Promise<GpuInspection | null> {
  const deviceId = cudaDeviceIdOf(config);
  if (deviceId === null) return null;
  const { requireCudaDevice } = await import("../runtime/require-cuda-device.ts");
  try {
    return { kind: "usable", device: requireCudaDevice(deviceId) };
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return { kind: "unusable", reason: error.message };
  }
}
