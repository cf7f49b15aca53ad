/**
 * ONNX Runtime's C API as typed functions. This is the only file that loads its library.
 *
 * `OrtGetApiBase()->GetApi(version)` returns a table of function pointers that only grows at its end, so an index never
 * changes. The indexes here follow the order of `struct OrtApi` in onnxruntime_c_api.h. Functions keep the names of
 * that header, which documents them.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { arch, platform } from "node:os";
import { dirname, join } from "node:path";
import koffi from "koffi";

import { EngineError } from "../contract/errors.ts";

/** An address of native memory. */
export type Pointer = bigint;
/** One element; receives the pointer or size that a function returns. */
export type OutPointer = BigUint64Array;
/** Null is success. Any other value must be released with `ReleaseStatus`. */
export type Status = Pointer | null;

const API_VERSION = 30;

export interface OrtApi {
  readonly GetErrorMessage: (status: Pointer) => string;
  readonly CreateEnv: (severity: number, logId: string, env: OutPointer) => Status;
  readonly CreateSession: (env: Pointer, path: string, options: Pointer, session: OutPointer) => Status;
  readonly CreateSessionFromArray: (
    env: Pointer,
    model: Uint8Array,
    numBytes: number,
    options: Pointer,
    session: OutPointer,
  ) => Status;
  readonly CreatePrepackedWeightsContainer: (container: OutPointer) => Status;
  readonly ReleasePrepackedWeightsContainer: (container: Pointer) => void;
  readonly CreateSessionFromArrayWithPrepackedWeightsContainer: CreateFromArrayWithContainer;
  readonly CreateSessionOptions: (options: OutPointer) => Status;
  readonly DisableMemPattern: (options: Pointer) => Status;
  readonly SetSessionLogSeverityLevel: (options: Pointer, severity: number) => Status;
  readonly SetSessionGraphOptimizationLevel: (options: Pointer, level: number) => Status;
  readonly SetIntraOpNumThreads: (options: Pointer, numThreads: number) => Status;
  readonly SessionGetInputCount: (session: Pointer, count: OutPointer) => Status;
  readonly SessionGetOutputCount: (session: Pointer, count: OutPointer) => Status;
  readonly SessionGetInputName: (session: Pointer, index: number, allocator: Pointer, name: OutPointer) => Status;
  readonly SessionGetOutputName: (session: Pointer, index: number, allocator: Pointer, name: OutPointer) => Status;
  readonly CreateTensorAsOrtValue: (
    allocator: Pointer,
    shape: BigInt64Array,
    rank: number,
    elementType: number,
    value: OutPointer,
  ) => Status;
  readonly CreateTensorWithDataAsOrtValue: (
    memoryInfo: Pointer,
    data: Pointer,
    numBytes: number,
    shape: BigInt64Array,
    rank: number,
    elementType: number,
    value: OutPointer,
  ) => Status;
  readonly GetTensorMutableData: (value: Pointer, data: OutPointer) => Status;
  readonly GetTensorElementType: (typeAndShape: Pointer, elementType: Int32Array) => Status;
  readonly GetDimensionsCount: (typeAndShape: Pointer, rank: OutPointer) => Status;
  readonly GetDimensions: (typeAndShape: Pointer, shape: BigInt64Array, rank: number) => Status;
  readonly GetTensorTypeAndShape: (value: Pointer, typeAndShape: OutPointer) => Status;
  readonly CreateMemoryInfo: (
    name: string,
    allocatorType: number,
    deviceId: number,
    memoryType: number,
    memoryInfo: OutPointer,
  ) => Status;
  readonly AllocatorFree: (allocator: Pointer, memory: Pointer) => Status;
  readonly GetAllocatorWithDefaultOptions: (allocator: OutPointer) => Status;
  readonly ReleaseStatus: (status: Pointer) => void;
  readonly ReleaseMemoryInfo: (memoryInfo: Pointer) => void;
  readonly ReleaseSession: (session: Pointer) => void;
  readonly ReleaseValue: (value: Pointer) => void;
  readonly ReleaseRunOptions: (options: Pointer) => void;
  readonly ReleaseTensorTypeAndShapeInfo: (typeAndShape: Pointer) => void;
  readonly ReleaseSessionOptions: (options: Pointer) => void;
  readonly CreateRunOptions: (options: OutPointer) => Status;
  readonly RunOptionsSetTerminate: (options: Pointer) => Status;
  readonly AddSessionConfigEntry: (options: Pointer, key: string, value: string) => Status;
  readonly AddInitializer: (options: Pointer, name: string, value: Pointer) => Status;
  readonly CreateAllocator: (session: Pointer, memoryInfo: Pointer, allocator: OutPointer) => Status;
  readonly ReleaseAllocator: (allocator: Pointer) => void;
  readonly RunWithBinding: RunWithBinding;
  readonly AddRunConfigEntry: (runOptions: Pointer, key: string, value: string) => Status;
  readonly CreateIoBinding: (session: Pointer, binding: OutPointer) => Status;
  readonly ReleaseIoBinding: (binding: Pointer) => void;
  readonly BindInput: (binding: Pointer, name: string, value: Pointer) => Status;
  readonly BindOutput: (binding: Pointer, name: string, value: Pointer) => Status;
  readonly BindOutputToDevice: (binding: Pointer, name: string, memoryInfo: Pointer) => Status;
  readonly GetBoundOutputValues: (
    binding: Pointer,
    allocator: Pointer,
    values: OutPointer,
    count: OutPointer,
  ) => Status;
  readonly ClearBoundInputs: (binding: Pointer) => void;
  readonly ClearBoundOutputs: (binding: Pointer) => void;
  readonly SessionOptionsAppendExecutionProvider_CUDA_V2: (options: Pointer, cudaOptions: Pointer) => Status;
  readonly CreateCUDAProviderOptions: (cudaOptions: OutPointer) => Status;
  readonly UpdateCUDAProviderOptions: (
    cudaOptions: Pointer,
    keys: readonly string[],
    values: readonly string[],
    count: number,
  ) => Status;
  readonly ReleaseCUDAProviderOptions: (cudaOptions: Pointer) => void;
  readonly SessionOptionsAppendExecutionProvider: (
    options: Pointer,
    provider: string,
    keys: readonly string[],
    values: readonly string[],
    count: number,
  ) => Status;
  readonly RegisterExecutionProviderLibrary: (env: Pointer, registrationName: string, path: string) => Status;
  readonly CopyTensors: CopyTensors;
}

type CopyArguments = [env: Pointer, sources: BigUint64Array, targets: BigUint64Array, stream: null, count: number];

interface CopyTensors {
  (...args: CopyArguments): Status;
  /** The same on a thread of libuv's pool. `done` is called by this thread's event loop. */
  async(...args: [...CopyArguments, done: (error: Error | null, status: Status) => void]): void;
}

export type CreationArguments = [
  env: Pointer,
  model: Uint8Array,
  numBytes: number,
  options: Pointer,
  container: Pointer,
  session: OutPointer,
];

interface CreateFromArrayWithContainer {
  (...args: CreationArguments): Status;
  /** The same on a thread of libuv's pool. `done` is called by this thread's event loop. */
  async(...args: [...CreationArguments, done: (error: Error | null, status: Status) => void]): void;
}

interface RunWithBinding {
  (session: Pointer, runOptions: Pointer | null, binding: Pointer): Status;
  /** Runs on a thread of libuv's pool; `onEnd` is called by the event loop of this thread. */
  async(
    session: Pointer,
    runOptions: Pointer | null,
    binding: Pointer,
    onEnd: (error: Error | null, status: Status) => void,
  ): void;
}

type Signature = readonly [index: number, result: "void *" | "void" | "str", parameters: readonly string[]];

const ptr = "void *";
const strings = "const char **";
// ORTCHAR_T: wide on Windows.
const path = platform() === "win32" ? "str16" : "str";

const signatures: Readonly<Record<keyof OrtApi, Signature>> = {
  GetErrorMessage: [2, "str", [ptr]],
  CreateEnv: [3, ptr, ["int", "str", ptr]],
  CreateSession: [7, ptr, [ptr, path, ptr, ptr]],
  CreateSessionFromArray: [8, ptr, [ptr, ptr, "size_t", ptr, ptr]],
  CreateSessionOptions: [10, ptr, [ptr]],
  DisableMemPattern: [17, ptr, [ptr]],
  SetSessionLogSeverityLevel: [22, ptr, [ptr, "int"]],
  SetSessionGraphOptimizationLevel: [23, ptr, [ptr, "int"]],
  SetIntraOpNumThreads: [24, ptr, [ptr, "int"]],
  SessionGetInputCount: [30, ptr, [ptr, ptr]],
  SessionGetOutputCount: [31, ptr, [ptr, ptr]],
  SessionGetInputName: [36, ptr, [ptr, "size_t", ptr, ptr]],
  SessionGetOutputName: [37, ptr, [ptr, "size_t", ptr, ptr]],
  CreateRunOptions: [39, ptr, [ptr]],
  RunOptionsSetTerminate: [46, ptr, [ptr]],
  CreateTensorAsOrtValue: [48, ptr, [ptr, ptr, "size_t", "int", ptr]],
  CreateTensorWithDataAsOrtValue: [49, ptr, [ptr, ptr, "size_t", ptr, "size_t", "int", ptr]],
  GetTensorMutableData: [51, ptr, [ptr, ptr]],
  GetTensorElementType: [60, ptr, [ptr, ptr]],
  GetDimensionsCount: [61, ptr, [ptr, ptr]],
  GetDimensions: [62, ptr, [ptr, ptr, "size_t"]],
  GetTensorTypeAndShape: [65, ptr, [ptr, ptr]],
  CreateMemoryInfo: [68, ptr, ["str", "int", "int", "int", ptr]],
  AllocatorFree: [76, ptr, [ptr, ptr]],
  GetAllocatorWithDefaultOptions: [78, ptr, [ptr]],
  ReleaseStatus: [93, "void", [ptr]],
  ReleaseMemoryInfo: [94, "void", [ptr]],
  ReleaseSession: [95, "void", [ptr]],
  ReleaseValue: [96, "void", [ptr]],
  ReleaseRunOptions: [97, "void", [ptr]],
  ReleaseTensorTypeAndShapeInfo: [99, "void", [ptr]],
  ReleaseSessionOptions: [100, "void", [ptr]],
  AddSessionConfigEntry: [130, ptr, [ptr, "str", "str"]],
  CreateAllocator: [131, ptr, [ptr, ptr, ptr]],
  ReleaseAllocator: [132, "void", [ptr]],
  RunWithBinding: [133, ptr, [ptr, ptr, ptr]],
  CreateIoBinding: [134, ptr, [ptr, ptr]],
  ReleaseIoBinding: [135, "void", [ptr]],
  BindInput: [136, ptr, [ptr, "str", ptr]],
  BindOutput: [137, ptr, [ptr, "str", ptr]],
  BindOutputToDevice: [138, ptr, [ptr, "str", ptr]],
  GetBoundOutputValues: [140, ptr, [ptr, ptr, ptr, ptr]],
  ClearBoundInputs: [141, "void", [ptr]],
  ClearBoundOutputs: [142, "void", [ptr]],
  AddInitializer: [150, ptr, [ptr, "str", ptr]],
  AddRunConfigEntry: [165, ptr, [ptr, "str", "str"]],
  CreatePrepackedWeightsContainer: [166, ptr, [ptr]],
  ReleasePrepackedWeightsContainer: [167, "void", [ptr]],
  CreateSessionFromArrayWithPrepackedWeightsContainer: [169, ptr, [ptr, ptr, "size_t", ptr, ptr, ptr]],
  SessionOptionsAppendExecutionProvider_CUDA_V2: [204, ptr, [ptr, ptr]],
  CreateCUDAProviderOptions: [205, ptr, [ptr]],
  UpdateCUDAProviderOptions: [206, ptr, [ptr, strings, strings, "size_t"]],
  ReleaseCUDAProviderOptions: [208, "void", [ptr]],
  SessionOptionsAppendExecutionProvider: [216, ptr, [ptr, "str", strings, strings, "size_t"]],
  RegisterExecutionProviderLibrary: [301, ptr, [ptr, "str", path]],
  CopyTensors: [386, ptr, [ptr, ptr, ptr, ptr, "size_t"]],
};

/**
 * Returns the folder of this platform's native files in the installed onnxruntime-node package.
 *
 * @throws EngineError `runtime_missing` with the command that installs a missing package.
 */
export function nativeFolder(): string {
  return join(dirname(findPackageFile()), "bin", "napi-v6", platform(), arch());
}

function findPackageFile(): string {
  try {
    return createRequire(import.meta.url).resolve("onnxruntime-node/package.json");
  } catch (cause) {
    throw new EngineError(
      "runtime_missing",
      "The package onnxruntime-node is not installed. Its install script downloads CUDA libraries from " +
        "api.nuget.org, and npm leaves the package out if the download fails. Install again without the download: " +
        "ONNXRUNTIME_NODE_INSTALL=skip npm install",
      { cause },
    );
  }
}

const libraryNames: Readonly<Record<string, string>> = {
  linux: "libonnxruntime.so.1",
  darwin: "libonnxruntime.1.dylib",
  win32: "onnxruntime.dll",
};

/**
 * Keeps a library in the process by loading it one extra time. koffi unloads a library when the object returned by
 * `load` is collected, at the latest when its thread ends. Threads of ONNX Runtime may still run then, and would
 * execute unmapped memory.
 */
function pinLibrary(libraryPath: string): void {
  if (platform() === "win32") {
    koffi.load("kernel32.dll").func("LoadLibraryW", ptr, ["str16"])(libraryPath);
    return;
  }
  const lazyBinding = 1;
  koffi.load(null).func("dlopen", ptr, ["str", "int"])(libraryPath, lazyBinding);
}

/**
 * Loads the library and returns its functions.
 *
 * @throws EngineError `invalid_configuration` if the package has no library for this platform, or one without API
 * version 30.
 */
export function loadOrtApi(): OrtApi {
  const libraryPath = join(nativeFolder(), libraryNames[platform()] ?? "libonnxruntime.so.1");
  if (!existsSync(libraryPath)) {
    throw new EngineError(
      "invalid_configuration",
      `onnxruntime-node has no library for ${platform()}-${arch()}: ${libraryPath} does not exist.`,
    );
  }
  pinLibrary(libraryPath);
  const library = koffi.load(libraryPath);
  const base: Pointer = library.func("OrtGetApiBase", ptr, [])();
  const getApi = functionAt(base, [0, ptr, ["uint32_t"]]);
  const table = getApi(API_VERSION) as Pointer | null;
  if (table === null) {
    throw new EngineError(
      "invalid_configuration",
      `${libraryPath} does not have version ${API_VERSION} of ONNX Runtime's C API.`,
    );
  }
  return Object.fromEntries(
    Object.entries(signatures).map(([name, signature]) => [name, functionAt(table, signature)]),
  ) as unknown as OrtApi;
}

function functionAt(table: Pointer, [index, result, parameters]: Signature): (...args: unknown[]) => unknown {
  const address: Pointer = koffi.decode(table, index * koffi.sizeof(ptr), ptr);
  return koffi.decode(address, koffi.proto(result, [...parameters]));
}

/**
 * The address of a view's first element; 0 for an empty view. Keep the memory referenced while native code uses the
 * address.
 */
export function addressOf(view: ArrayBufferView): Pointer {
  // V8 keeps small typed arrays in its moving heap until their buffer is requested.
  void view.buffer;
  return koffi.address(view);
}

/** The zero-terminated UTF-8 string at an address. */
export function stringAt(address: Pointer): string {
  return koffi.decode.string(address);
}

/** The pointers of an array at an address. */
export function pointersAt(address: Pointer, count: number): Pointer[] {
  return koffi.decode(address, ptr, count);
}

/** A copy of native memory. */
export function copyOfMemory(address: Pointer, numBytes: number): ArrayBuffer {
  return koffi.view(address, numBytes).slice(0);
}
