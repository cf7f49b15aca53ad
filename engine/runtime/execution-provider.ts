/** The devices on which a session may run: how to add each to session options, and the name of its memory. */
import { closeSync, existsSync, openSync, readSync } from "node:fs";
import { platform } from "node:os";
import { join } from "node:path";
import { threadId } from "node:worker_threads";
import koffi from "koffi";

import type { DeviceName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { CUDA_MAJOR_VERSION, explainCudaStart, missingProviderError, otherCudaError } from "./device-errors.ts";
import { nativeFolder } from "./ort-api.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";

export interface ProviderOptions {
  readonly deviceId: number;
  /**
   * Options of the CUDA provider by its own names (`gpu_mem_limit`, `arena_extend_strategy`, `cudnn_conv_algo_search`,
   * `use_tf32`, ...). They take precedence over ours.
   */
  readonly cudaProviderOptions?: Readonly<Record<string, string>>;
}

interface Device {
  /** Name of the memory that its kernels read and write; null if that is the host's memory. */
  readonly memoryName: string | null;
  /** Whether addresses are those of the memory, so that a tensor may begin anywhere within another. */
  readonly hasViews: boolean;
  readonly append: (sessionOptions: Pointer, options: ProviderOptions) => void;
  /** Enables `CopyTensors` for the memory if appending the provider does not. */
  readonly enableCopies: () => void;
}

const devices: Readonly<Record<DeviceName, Device>> = {
  // Always available; the other providers fall back to it.
  cpu: { memoryName: null, hasViews: true, append: () => {}, enableCopies: () => {} },
  // ONNX Runtime 1.30 shares one GPU context among all sessions without a lock, so only one thread of a process may use
  // it.
  // Its addresses are handles of buffers.
  webgpu: { memoryName: "WebGPU_Buf", hasViews: false, append: appendWebGpu, enableCopies: () => {} },
  cuda: { memoryName: "Cuda", hasViews: true, append: appendCuda, enableCopies: enableCudaCopies },
};

export function deviceMemoryName(device: DeviceName): string | null {
  return devices[device].memoryName;
}

export function deviceHasViews(device: DeviceName): boolean {
  return devices[device].hasViews;
}

const devicesWithCopies = new Set<DeviceName>();

/** Makes `CopyTensors` work on the memory of a device. Only the first call in a thread has an effect. */
export function enableCopies(device: DeviceName): void {
  if (devicesWithCopies.has(device)) return;
  devices[device].enableCopies();
  devicesWithCopies.add(device);
}

/**
 * Adds the provider for `device` to native session options.
 *
 * @throws EngineError `invalid_configuration` if the installation lacks the provider, or what it needs; `runtime_failed`
 * if the provider rejects its options.
 */
export function appendExecutionProvider(device: DeviceName, sessionOptions: Pointer, options: ProviderOptions): void {
  devices[device].append(sessionOptions, options);
}

function appendWebGpu(sessionOptions: Pointer, { deviceId }: ProviderOptions): void {
  if (deviceId !== 0) {
    throw new EngineError(
      "invalid_configuration",
      `The webgpu device uses the system's default adapter: only device id 0 is supported, not ${deviceId}.`,
      { setting: "deviceId" },
    );
  }
  const { api } = ortEnvironment();
  checkStatus(api, api.SessionOptionsAppendExecutionProvider(sessionOptions, "WebGPU", [], [], 0));
}

function hasCudnn(libraryName = cudnnName): boolean {
  try {
    koffi.load(libraryName);
    return true;
  } catch {
    return false;
  }
}

/**
 * The provider runs without cuDNN, but two operators refuse to: convolutions, and the attention of vision encoders
 * (`MultiHeadAttention`, whichever kernel it then selects).
 *
 * @param libraryName Default: that of this platform.
 * @throws EngineError `invalid_configuration` if cuDNN is missing.
 */
export function requireCudnn(libraryName = cudnnName): void {
  if (hasCudnn(libraryName)) return;
  throw new EngineError(
    "invalid_configuration",
    `Images need cuDNN 9 on cuda, and ${libraryName} cannot be loaded. Install nvidia-cudnn-cu13 as in ` +
      "container/cuda-requirements.txt and add its folder to LD_LIBRARY_PATH, use the image `cuda` instead of " +
      "`cuda-slim`, or encode images on the CPU (vision device cpu).",
  );
}

function createCudaOptions(deviceId: number): Pointer {
  const { api, out } = ortEnvironment();
  try {
    // Loads the provider's library.
    checkStatus(api, api.CreateCUDAProviderOptions(out));
    return out[0]!;
  } catch (error) {
    throw error instanceof EngineError ? explainCudaStart(error, deviceId) : error;
  }
}

function appendCuda(sessionOptions: Pointer, { deviceId, cudaProviderOptions }: ProviderOptions): void {
  requireCudaLibraries(nativeFolder());
  const { api } = ortEnvironment();
  // Same-as-requested growth: doubling would take memory that is reserved for the KV cache.
  const entries = Object.entries({
    arena_extend_strategy: "kSameAsRequested",
    // Trying all algorithms would repeat for every new size of a picture, and take memory that no plan knows.
    cudnn_conv_algo_search: "HEURISTIC",
    // Decoders need no cuDNN, so an installation that serves text alone may leave it out.
    ...(hasCudnn() ? {} : { enable_cudnn: "0" }),
    ...cudaProviderOptions,
    device_id: String(deviceId),
  });
  const cudaOptions = createCudaOptions(deviceId);
  try {
    const keys = entries.map(([key]) => key);
    const values = entries.map(([, value]) => value);
    checkStatus(api, api.UpdateCUDAProviderOptions(cudaOptions, keys, values, entries.length));
    checkStatus(api, api.SessionOptionsAppendExecutionProvider_CUDA_V2(sessionOptions, cudaOptions));
  } catch (error) {
    throw error instanceof EngineError ? explainCudaStart(error, deviceId) : error;
  } finally {
    api.ReleaseCUDAProviderOptions(cudaOptions);
  }
}

// A provider in session options copies for its sessions only. A registered one also copies for the environment.
function enableCudaCopies(): void {
  const { api, env } = ortEnvironment();
  // The environment belongs to the process and rejects a name that it knows, so each thread registers its own name.
  const registrationName = `fovea-cuda-${threadId}`;
  checkStatus(api, api.RegisterExecutionProviderLibrary(env, registrationName, join(nativeFolder(), cudaLibraryName)));
}

const [sharedLibraryName, cudaLibraryName] =
  platform() === "win32"
    ? ["onnxruntime_providers_shared.dll", "onnxruntime_providers_cuda.dll"]
    : ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"];

const cudnnName = platform() === "win32" ? "cudnn64_9.dll" : "libcudnn.so.9";

/** The names of the libraries that another needs stand at its start. */
const NUM_ELF_BYTES = 2 ** 20;

/**
 * The npm package does not contain the provider's libraries. Another version's may crash the process when it is loaded,
 * so the CUDA that it was built for is read from the file.
 *
 * @throws EngineError `invalid_configuration` that names the file, and where to take it from.
 */
export function requireCudaLibraries(folder: string): void {
  for (const fileName of [cudaLibraryName, sharedLibraryName]) {
    const path = join(folder, fileName);
    if (!existsSync(path)) throw missingProviderError(fileName, path);
  }
  const path = join(folder, cudaLibraryName);
  const major = cudaVersionOf(path);
  if (major !== null && major !== CUDA_MAJOR_VERSION) throw otherCudaError(path, major);
}

/** Null where the library does not say. */
function cudaVersionOf(path: string): number | null {
  const bytes = Buffer.alloc(NUM_ELF_BYTES);
  const file = openSync(path, "r");
  try {
    const numBytes = readSync(file, bytes, 0, NUM_ELF_BYTES, 0);
    const match = /libcudart\.so\.(\d+)/.exec(bytes.toString("latin1", 0, numBytes));
    return match === null ? null : Number(match[1]);
  } finally {
    closeSync(file);
  }
}
