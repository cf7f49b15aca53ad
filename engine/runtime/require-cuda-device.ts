/** A check of the machine before anything is downloaded or loaded for its GPU. */
import { inspectCudaDriver } from "./cuda-driver.ts";
import type { CudaDevice } from "./cuda-driver.ts";
import { requireCudaLibraries } from "./execution-provider.ts";
import { nativeFolder } from "./ort-api.ts";

/**
 * Everything that can be known about a GPU before a model is there.
 *
 * @throws EngineError `invalid_configuration` with one sentence that says what is missing and what to do.
 */
export function requireCudaDevice(deviceId: number): CudaDevice {
  requireCudaLibraries(nativeFolder());
  return inspectCudaDriver(deviceId);
}
