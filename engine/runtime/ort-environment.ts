/** Shared by all sessions and tensors of a thread: the API, the environment, the host's memory. */
import { EngineError } from "../contract/errors.ts";
import { isDeviceLost, isOutOfMemory } from "./device-errors.ts";
import { loadOrtApi } from "./ort-api.ts";
import type { OrtApi, OutPointer, Pointer, Status } from "./ort-api.ts";

/** Logs to stderr only errors that make the process unusable. All other errors arrive as a status. */
export const LOG_SEVERITY_FATAL = 4;

const DEVICE_ALLOCATOR = 0;
const DEFAULT_MEMORY = 0;

export interface OrtEnvironment {
  readonly api: OrtApi;
  readonly env: Pointer;
  /** Describes memory of the host. */
  readonly hostMemory: Pointer;
  /** Frees memory that the API allocates for its caller: names and lists. Never released. */
  readonly allocator: Pointer;
  /** Receives the pointer of the current call. The next call overwrites it. */
  readonly out: OutPointer;
}

let environment: OrtEnvironment | null = null;

/**
 * Created at first use and kept for the life of the thread. ONNX Runtime has one reference-counted environment per
 * process, so several threads may each create theirs.
 */
export function ortEnvironment(): OrtEnvironment {
  environment ??= createEnvironment();
  return environment;
}

function createEnvironment(): OrtEnvironment {
  const api = loadOrtApi();
  const out = new BigUint64Array(1);
  checkStatus(api, api.CreateEnv(LOG_SEVERITY_FATAL, "fovea", out));
  const env = out[0]!;
  checkStatus(api, api.CreateMemoryInfo("Cpu", DEVICE_ALLOCATOR, 0, DEFAULT_MEMORY, out));
  const hostMemory = out[0]!;
  checkStatus(api, api.GetAllocatorWithDefaultOptions(out));
  return { api, env, hostMemory, allocator: out[0]!, out };
}

/** Describes the memory of a device; the caller releases it with `ReleaseMemoryInfo`. */
export function createMemoryInfo(name: string, deviceId: number): Pointer {
  const { api, out } = ortEnvironment();
  checkStatus(api, api.CreateMemoryInfo(name, DEVICE_ALLOCATOR, deviceId, DEFAULT_MEMORY, out));
  return out[0]!;
}

/**
 * Releases a failed call's status.
 *
 * @throws EngineError with ONNX Runtime's message: `device_lost` or `out_of_memory` if it says so, else
 *   `runtime_failed`.
 */
export function checkStatus(api: OrtApi, status: Status): void {
  if (status === null) return;
  const message = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw new EngineError(codeOf(message), message);
}

function codeOf(message: string): "device_lost" | "out_of_memory" | "runtime_failed" {
  if (isDeviceLost(message)) return "device_lost";
  return isOutOfMemory(message) ? "out_of_memory" : "runtime_failed";
}
