/** Explains failures of a GPU: missing software, exhausted memory, or a lost device. */
import { EngineError } from "../contract/errors.ts";

/** The version of ONNX Runtime, and the CUDA that its provider is built for. */
export const onnxRuntimeVersion = "1.30.0";
export const CUDA_MAJOR_VERSION = 13;

/** The first driver with CUDA 13.0. */
export const oldestDriver = "580";

const installing = "docs/gpu.md has the commands.";

/**
 * Errors of CUDA after which every later call of the process fails as well: uncorrectable ECC and NVLink errors, illegal
 * addresses and instructions, a launch that failed or took too long, a destroyed context, and "unknown".
 *
 * @see the enumeration `cudaError` of CUDA 13
 */
const lastingCudaErrors: ReadonlySet<number> = new Set([
  214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999,
]);

/** ONNX Runtime writes `CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; ...`. */
const cudaFailure = /\bCUDA (?:failure|error) (\d+)\b/i;

/** Dawn's texts, and CUDA's texts from libraries that report no number. */
const lostDevice =
  /device (?:was |is )?lost|lost device|unspecified launch failure|illegal memory access|uncorrectable ECC error|fallen off the bus/i;

/**
 * Texts of CUDA (error 2), its libraries, ONNX Runtime's arenas, the host's allocator and Dawn for memory that is not
 * there.
 */
const exhaustedMemory =
  /out[ _]of[ _]memory|CUDA (?:failure|error) 2\b|failed to allocate memory|is smaller than requested bytes|bad_alloc|ALLOC(?:ATION)?_FAILED/i;

/** Whether a native error says that memory ran out. A smaller run may succeed. */
export function isOutOfMemory(message: string): boolean {
  return exhaustedMemory.test(message);
}

/** Whether a native error says that the device is unusable until the process ends. */
export function isDeviceLost(message: string): boolean {
  const failure = cudaFailure.exec(message);
  return (failure !== null && isLastingCudaError(Number(failure[1]))) || lostDevice.test(message);
}

/** @param status The status that a call of CUDA's runtime returned. */
export function isLastingCudaError(status: number): boolean {
  return lastingCudaErrors.has(status);
}

interface StartFailure {
  readonly pattern: RegExp;
  readonly explain: (match: RegExpExecArray, deviceId: number) => string;
  /** The setting to change, where nothing has to be installed. */
  readonly setting?: "deviceId";
}

/** Patterns of ONNX Runtime 1.30's messages, in the order of the search. */
const startFailures: readonly StartFailure[] = [
  {
    pattern: /libcuda\.so\.1: cannot open/,
    explain: () =>
      `This machine has no NVIDIA driver: libcuda.so.1 is not there. Install driver ${oldestDriver} or newer; in a ` +
      "container, start it with NVIDIA's container toolkit (`--gpus all`).",
  },
  {
    pattern: /CUDA failure (?:35|36|803)\b|CUDA driver version is insufficient|undefined symbol: cu[A-Z]/i,
    explain: () =>
      `The NVIDIA driver is too old for CUDA ${CUDA_MAJOR_VERSION}, or not the one whose libraries are here. Install ` +
      `driver ${oldestDriver} or newer (\`nvidia-smi\` prints it), and no libcuda.so.1 beside the driver's own.`,
  },
  {
    pattern: /CUDA failure 100\b|no CUDA-capable device/i,
    explain: () =>
      "The NVIDIA driver finds no GPU. `nvidia-smi -L` lists them; CUDA_VISIBLE_DEVICES may hide them, and a container " +
      "needs `--gpus all`.",
  },
  {
    pattern: /CUDA failure 101\b|invalid device ordinal/i,
    explain: (_, deviceId) =>
      `There is no CUDA device ${deviceId}: choose one that \`nvidia-smi -L\` lists, counted from 0 among those that ` +
      "CUDA_VISIBLE_DEVICES leaves.",
    setting: "deviceId",
  },
  {
    pattern: /(lib(?:cublas|cublasLt|cudart|curand|cudnn|cufft|nvrtc)\S*\.so\.(\d+)): cannot open/,
    explain: ([, library]) =>
      `The cuda device needs ${library} of CUDA ${CUDA_MAJOR_VERSION}, and it cannot be found. Install the libraries ` +
      `that container/cuda-requirements.txt lists, and add their folders to LD_LIBRARY_PATH; ${installing}`,
  },
  {
    pattern: /undefined symbol|version `[^']*' not found|invalid ELF header|file too short|wrong ELF class/i,
    explain: () =>
      `The CUDA provider does not fit ONNX Runtime ${onnxRuntimeVersion}: its library is damaged or of another version. ` +
      `Take it from the Python wheel onnxruntime-gpu==${onnxRuntimeVersion}; ${installing}`,
  },
];

/**
 * The error for a CUDA provider that does not start.
 *
 * @param cause The error of ONNX Runtime; returned unchanged if no installation could fix its reason.
 * @param source Who reported it.
 */
export function explainCudaStart(cause: EngineError, deviceId: number, source = "ONNX Runtime"): EngineError {
  for (const { pattern, explain, setting } of startFailures) {
    const match = pattern.exec(cause.message);
    if (match === null) continue;
    return new EngineError("invalid_configuration", `${explain(match, deviceId)} ${source}: ${cause.message}`, {
      cause,
      ...(setting && { setting }),
    });
  }
  return cause;
}

/**
 * The error for a provider library that is not in the folder.
 *
 * @param path The expected path.
 */
export function missingProviderError(fileName: string, path: string): EngineError {
  return new EngineError(
    "invalid_configuration",
    `The cuda device needs ${fileName}, and ${path} does not exist. Copy it there from the Python wheel ` +
      `onnxruntime-gpu==${onnxRuntimeVersion}, folder onnxruntime/capi, which is built for CUDA ${CUDA_MAJOR_VERSION}; ` +
      installing,
  );
}

/** @param major The CUDA that the library is built for. */
export function otherCudaError(path: string, major: number): EngineError {
  return new EngineError(
    "invalid_configuration",
    `${path} is built for CUDA ${major}, so it is of another version than ONNX Runtime ${onnxRuntimeVersion}, whose ` +
      `provider needs CUDA ${CUDA_MAJOR_VERSION}. Take it from the Python wheel ` +
      `onnxruntime-gpu==${onnxRuntimeVersion}, folder onnxruntime/capi; ${installing}`,
  );
}
