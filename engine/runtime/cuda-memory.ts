/** Memory of a CUDA device, as its runtime library reports it. */
import koffi from "koffi";

import { EngineError } from "../contract/errors.ts";
import { isLastingCudaError } from "./device-errors.ts";

export interface CudaMemory {
  readonly totalBytes: number;
  /** Not in use by any process. */
  readonly freeBytes: number;
}

/** The CUDA version that ONNX Runtime 1.30's provider is built for. Loading it again returns the loaded library. */
const runtimeLibraryName = "libcudart.so.13";

/**
 * Call it after a session on the device was loaded.
 *
 * @throws EngineError `invalid_configuration` if the library is missing, `runtime_failed` or `device_lost` if the
 * device does not answer.
 */
export function cudaMemoryBytes(deviceId: number): CudaMemory {
  const library = loadRuntimeLibrary();
  const setDevice = library.func("int cudaSetDevice(int device)");
  const getMemory = library.func("int cudaMemGetInfo(_Out_ size_t *free, _Out_ size_t *total)");
  const free: [number] = [0];
  const total: [number] = [0];
  const status = Number(setDevice(deviceId)) || Number(getMemory(free, total));
  if (status !== 0) {
    const code = isLastingCudaError(status) ? "device_lost" : "runtime_failed";
    throw new EngineError(code, `CUDA device ${deviceId} does not report its memory: error ${status}.`);
  }
  return { freeBytes: free[0], totalBytes: total[0] };
}

function loadRuntimeLibrary(): ReturnType<typeof koffi.load> {
  try {
    return koffi.load(runtimeLibraryName);
  } catch (cause) {
    throw new EngineError(
      "invalid_configuration",
      `The cuda device needs ${runtimeLibraryName} of CUDA 13, and it cannot be loaded. ` +
        "Install the CUDA 13 runtime, or add its folder to LD_LIBRARY_PATH; docs/gpu.md has the commands.",
      { cause },
    );
  }
}
