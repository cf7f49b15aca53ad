/**
 * Asks NVIDIA's driver for its version and devices, before anything is downloaded: a machine that cannot serve says so in
 * one line after a fraction of a second.
 *
 * @see https://docs.nvidia.com/cuda/cuda-driver-api/
 */
import koffi from "koffi";

import { EngineError } from "../contract/errors.ts";
import { CUDA_MAJOR_VERSION, explainCudaStart, oldestDriver } from "./device-errors.ts";

export interface CudaDevice {
  readonly name: string;
  readonly memoryBytes: number;
  /** Such as 9.0. */
  readonly computeCapability: string;
  /** The newest CUDA that the driver supports, such as 13.0. */
  readonly driverCudaVersion: string;
  /** Devices that CUDA_VISIBLE_DEVICES leaves. */
  readonly numDevices: number;
}

/** The calls of the driver that this file makes. Each returns a status and null for no value. */
export interface CudaDriver {
  init(): number;
  /** 1000 times the major plus 10 times the minor version. */
  version(): number;
  deviceCount(): Answer;
  /** The handle of the device. */
  device(index: number): Answer;
  name(device: number): { readonly status: number; readonly value: string };
  totalBytes(device: number): Answer;
  attribute(attribute: number, device: number): Answer;
}

interface Answer {
  readonly status: number;
  readonly value: number;
}

const libraryName = "libcuda.so.1";
const MAX_NAME_BYTES = 256;
const COMPUTE_CAPABILITY_MAJOR = 75;
const COMPUTE_CAPABILITY_MINOR = 76;

/**
 * Of the provider's machine code, by major version: the oldest minor version it runs on. It has no PTX that a driver could
 * compile for others. Machine code runs on later minor versions too, but not that for 9.0 and 12.0: it is specific to its
 * architecture (`sm_90a`, `sm_120a`).
 *
 * @see docs/gpu.md
 */
const machineCode = new Map([
  [7, { oldestMinor: 5, isSpecific: false }],
  [8, { oldestMinor: 0, isSpecific: false }],
  [9, { oldestMinor: 0, isSpecific: true }],
  [12, { oldestMinor: 0, isSpecific: true }],
]);

/**
 * @param open Default: loads the driver's library.
 * @throws EngineError `invalid_configuration` with one sentence that says what is missing and what to do.
 */
export function inspectCudaDriver(deviceId: number, open: () => CudaDriver = openCudaDriver): CudaDevice {
  const failed = (status: number): EngineError => {
    const cause = new EngineError("runtime_failed", `CUDA failure ${status}.`);
    return explainCudaStart(cause, deviceId, libraryName);
  };
  const valueOf = ({ status, value }: Answer): number => {
    if (status !== 0) throw failed(status);
    return value;
  };
  const driver = open();
  const initStatus = driver.init();
  if (initStatus !== 0) throw failed(initStatus);
  const version = driver.version();
  const driverCudaVersion = `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
  if (version < CUDA_MAJOR_VERSION * 1000) {
    throw new EngineError(
      "invalid_configuration",
      `The NVIDIA driver is too old: it supports CUDA ${driverCudaVersion}, and CUDA ${CUDA_MAJOR_VERSION} is needed. ` +
        `Install driver ${oldestDriver} or newer (\`nvidia-smi\` prints it).`,
    );
  }
  const numDevices = valueOf(driver.deviceCount());
  if (numDevices === 0) throw failed(NO_DEVICE);
  if (deviceId >= numDevices) throw failed(INVALID_DEVICE);
  const device = valueOf(driver.device(deviceId));
  const { status, value: name } = driver.name(device);
  if (status !== 0) throw failed(status);
  const major = valueOf(driver.attribute(COMPUTE_CAPABILITY_MAJOR, device));
  const minor = valueOf(driver.attribute(COMPUTE_CAPABILITY_MINOR, device));
  const computeCapability = `${major}.${minor}`;
  const code = machineCode.get(major);
  if (code === undefined || (code.isSpecific ? minor !== code.oldestMinor : minor < code.oldestMinor)) {
    throw new EngineError(
      "invalid_configuration",
      `The GPU ${name} has compute capability ${computeCapability}; the provider has code for ` +
        `7.5, 8.x, 9.0 and 12.0. Choose another GPU, or the device cpu.`,
      { setting: "deviceId" },
    );
  }
  const memoryBytes = valueOf(driver.totalBytes(device));
  return { name, memoryBytes, computeCapability, driverCudaVersion, numDevices };
}

/** The provider's attention has kernels for bfloat16 from this generation on. */
const BFLOAT16_MAJOR = 8;

/** Its decoding attention over FP8 keys and values, from this compute capability on. */
const FP8_CAPABILITY = 8.9;

/**
 * @param elementType Of the decoder's keys and values: the type in which it computes, unless it is FP8.
 * @throws EngineError `invalid_configuration` if the provider has no attention for it on this device.
 */
export function requireKernelsFor(
  elementType: string,
  { name, computeCapability }: Pick<CudaDevice, "name" | "computeCapability">,
): void {
  if (elementType === "float8e4m3" && Number(computeCapability) < FP8_CAPABILITY) {
    throw new EngineError(
      "invalid_configuration",
      `The GPU ${name} has compute capability ${computeCapability}; an FP8 KV cache needs 8.9 or more, as an L4, a card of ` +
        'the RTX 40 series or an H100 has. Choose the KV cache dtype "model" or "auto".',
      { setting: "kvCacheDtype" },
    );
  }
  if (elementType !== "bfloat16" || Number.parseInt(computeCapability, 10) >= BFLOAT16_MAJOR) return;
  throw new EngineError(
    "invalid_configuration",
    `The GPU ${name} has compute capability ${computeCapability}, and bfloat16, which dtype auto takes for a checkpoint ` +
      `in bfloat16, needs ${BFLOAT16_MAJOR}.0. Set dtype to float16, int8 or int4.`,
    { setting: "dtype" },
  );
}

/** CUDA_ERROR_NO_DEVICE and CUDA_ERROR_INVALID_DEVICE. */
const NO_DEVICE = 100;
const INVALID_DEVICE = 101;

/** @throws EngineError `invalid_configuration` if there is no driver. */
function openCudaDriver(): CudaDriver {
  const library = loadLibrary();
  const numberFrom = (call: (value: [number]) => number): Answer => {
    const value: [number] = [0];
    const status = call(value);
    return { status, value: value[0] };
  };
  const init = library.func("int cuInit(unsigned int flags)");
  const version = library.func("int cuDriverGetVersion(_Out_ int *version)");
  const count = library.func("int cuDeviceGetCount(_Out_ int *count)");
  const get = library.func("int cuDeviceGet(_Out_ int *device, int ordinal)");
  const getName = library.func("int cuDeviceGetName(_Out_ uint8_t *name, int length, int device)");
  const totalMemory = library.func("int cuDeviceTotalMem_v2(_Out_ size_t *bytes, int device)");
  const getAttribute = library.func("int cuDeviceGetAttribute(_Out_ int *value, int attribute, int device)");
  return {
    init: () => init(0) as number,
    version: () => numberFrom((value) => version(value) as number).value,
    deviceCount: () => numberFrom((value) => count(value) as number),
    device: (index) => numberFrom((value) => get(value, index) as number),
    name(device) {
      const bytes = Buffer.alloc(MAX_NAME_BYTES);
      const status = getName(bytes, MAX_NAME_BYTES, device) as number;
      return { status, value: bytes.toString("latin1", 0, Math.max(0, bytes.indexOf(0))) };
    },
    totalBytes: (device) => numberFrom((bytes) => totalMemory(bytes, device) as number),
    attribute: (attribute, device) => numberFrom((value) => getAttribute(value, attribute, device) as number),
  };
}

function loadLibrary(): ReturnType<typeof koffi.load> {
  try {
    return koffi.load(libraryName);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const cause = new EngineError("runtime_failed", `${libraryName}: cannot open (${reason})`, { cause: error });
    throw explainCudaStart(cause, 0, "The loader");
  }
}
