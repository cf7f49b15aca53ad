/** The devices on which a session may run: how to add each to session options, and the name of its memory. */
import { existsSync } from "node:fs";
import { platform } from "node:os";
import { join } from "node:path";
import { threadId } from "node:worker_threads";
import type { DeviceName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
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
  readonly append: (sessionOptions: Pointer, options: ProviderOptions) => void;
  /** Enables `CopyTensors` for the memory if appending the provider does not. */
  readonly enableCopies: () => void;
}

const devices: Readonly<Record<DeviceName, Device>> = {
  // Always available; the other providers fall back to it.
  cpu: { memoryName: null, append: () => {}, enableCopies: () => {} },
  // ONNX Runtime 1.30 shares one GPU context among all sessions without a lock, so only one thread of a process may use
  // it.
  webgpu: { memoryName: "WebGPU_Buf", append: appendWebGpu, enableCopies: () => {} },
  cuda: { memoryName: "Cuda", append: appendCuda, enableCopies: enableCudaCopies },
};

export function deviceMemoryName(device: DeviceName): string | null {
  return devices[device].memoryName;
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
 * @throws EngineError `invalid_configuration` if the installation lacks the provider, `runtime_failed` if the provider
 * rejects its options.
 */
export function appendExecutionProvider(device: DeviceName, sessionOptions: Pointer, options: ProviderOptions): void {
  devices[device].append(sessionOptions, options);
}

function appendWebGpu(sessionOptions: Pointer, { deviceId }: ProviderOptions): void {
  if (deviceId !== 0) {
    throw new EngineError(
      "invalid_configuration",
      `The webgpu device uses the system's default adapter: only device id 0 is supported, not ${deviceId}.`,
    );
  }
  const { api } = ortEnvironment();
  checkStatus(api, api.SessionOptionsAppendExecutionProvider(sessionOptions, "WebGPU", [], [], 0));
}

function appendCuda(sessionOptions: Pointer, { deviceId, cudaProviderOptions }: ProviderOptions): void {
  requireCudaLibraries(nativeFolder());
  const { api, out } = ortEnvironment();
  // Same-as-requested growth: doubling would take memory that is reserved for the KV cache.
  const entries = Object.entries({
    arena_extend_strategy: "kSameAsRequested",
    ...cudaProviderOptions,
    device_id: String(deviceId),
  });
  checkStatus(api, api.CreateCUDAProviderOptions(out));
  const cudaOptions = out[0];
  try {
    const keys = entries.map(([key]) => key);
    const values = entries.map(([, value]) => value);
    checkStatus(api, api.UpdateCUDAProviderOptions(cudaOptions, keys, values, entries.length));
    checkStatus(api, api.SessionOptionsAppendExecutionProvider_CUDA_V2(sessionOptions, cudaOptions));
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

/**
 * The npm package does not contain the provider's libraries; its install script downloads them.
 *
 * @throws EngineError `invalid_configuration` that names the missing file and the command that installs it.
 */
export function requireCudaLibraries(folder: string): void {
  for (const fileName of [cudaLibraryName, sharedLibraryName]) {
    const path = join(folder, fileName);
    if (existsSync(path)) continue;
    throw new EngineError(
      "invalid_configuration",
      `The cuda device needs ${fileName}, and ${path} does not exist. Run this in the folder of the installation: ` +
        "ONNXRUNTIME_NODE_INSTALL=cuda12 node node_modules/onnxruntime-node/script/install",
    );
  }
}
