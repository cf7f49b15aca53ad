/** A loaded model: created from an ONNX file, run through bindings. Calls block their thread. */
import { readFileSync } from "node:fs";
import process from "node:process";

import type { DeviceName } from "../contract/config.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import { DeviceMemory } from "./device-memory.ts";
import { typedArrayOver } from "./element-type.ts";
import type { TensorElementType } from "./element-type.ts";
import { appendExecutionProvider, deviceMemoryName } from "./execution-provider.ts";
import type { ProviderOptions } from "./execution-provider.ts";
import { IoBinding } from "./io-binding.ts";
import { stringAt } from "./ort-api.ts";
import type { CreationArguments, OutPointer, Pointer, Status } from "./ort-api.ts";
import { checkStatus, LOG_SEVERITY_FATAL, ortEnvironment } from "./ort-environment.ts";
import type { SharedWeights } from "./shared-weights.ts";
import { checkedByteLength, Tensor } from "./tensor.ts";
import { numUsableCores } from "./usable-cores.ts";

export type GraphOptimizationLevel = "disabled" | "basic" | "extended" | "all";

const graphOptimizationLevels: Readonly<Record<GraphOptimizationLevel, number>> = {
  disabled: 0,
  basic: 1,
  extended: 2,
  all: 99,
};

const externalDataFolderKey = "session.model_external_initializers_file_folder_path";

/** Runs with another number of threads. */
export interface OtherRuns {
  /** Including the calling one. */
  readonly numThreads: number;
  /** Whether a run that begins now should have them. */
  areWanted(): boolean;
}

export interface SessionOptions extends ProviderOptions {
  readonly device: DeviceName;
  /** Threads of one run, including the calling one; null means one per physical core. */
  readonly numThreads: number | null;
  /**
   * Only with `sharedWeights`, because the model is loaded again for them: beside the runs, when they are first wanted.
   * Until then they have `numThreads`, as all runs have by default.
   */
  readonly otherRuns?: OtherRuns | undefined;
  /** Of this model. Default: the session loads its own. */
  readonly sharedWeights?: SharedWeights | undefined;
  /** Default "all". */
  readonly graphOptimizationLevel?: GraphOptimizationLevel;
  /**
   * Absolute path of the base folder of the model's external data locations; default: the model's own folder. Weights
   * in several folders need a common parent folder, because ONNX Runtime rejects locations outside.
   */
  readonly externalDataFolder?: string | undefined;
  /** By ONNX Runtime's names, e.g. `session.intra_op.allow_spinning`: "0". */
  readonly configEntries?: Readonly<Record<string, string>>;
}

/** Sessions of this thread that are not disposed of. */
const openSessions = new Set<Session>();

export class Session implements Disposable {
  readonly device: DeviceName;
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  /** Null if the device uses the host's memory. */
  readonly deviceMemory: DeviceMemory | null;
  /** Null after the disposal. */
  #handle: Pointer | null;
  readonly #other: OtherSession | null;
  // Disposed of with the session: a later run would access a session that no longer exists.
  readonly #bindings = new Set<IoBinding>();
  /** Null if no remaining binding has run since the memory of runs was released. */
  #lastRun: IoBinding | null = null;

  private constructor(session: Pointer, other: OtherSession | null, { device, deviceId }: SessionOptions) {
    const { api } = ortEnvironment();
    this.#handle = session;
    this.#other = other;
    this.device = device;
    const memoryName = deviceMemoryName(device);
    this.deviceMemory = memoryName === null ? null : new DeviceMemory(session, device, memoryName, deviceId);
    this.inputNames = readNames(session, api.SessionGetInputCount, api.SessionGetInputName);
    this.outputNames = readNames(session, api.SessionGetOutputCount, api.SessionGetOutputName);
    openSessions.add(this);
  }

  /**
   * Loads a model by path, so that weights in external files are mapped, not read.
   *
   * @throws EngineError `runtime_failed` with ONNX Runtime's message for a missing, broken or unsupported model;
   * `invalid_configuration` if the installation lacks the device's provider.
   */
  static load(path: string, options: SessionOptions): Session {
    // The folder can be chosen for a model given as bytes only. They are small: the weights are elsewhere.
    const isPath = options.externalDataFolder === undefined && options.sharedWeights === undefined;
    return Session.#create(isPath ? path : readModel(path), options);
  }

  /**
   * Loads a model without external files from its bytes.
   *
   * @throws EngineError as `load` does.
   */
  static fromBytes(model: Uint8Array, options: SessionOptions): Session {
    return Session.#create(model, options);
  }

  /** @param model Its path, or its bytes. */
  static #create(model: string | Uint8Array, options: SessionOptions): Session {
    const { sharedWeights, otherRuns } = options;
    const { api } = ortEnvironment();
    using created = new DisposableStack();
    let other: OtherSession | null = null;
    let handle: Pointer;
    if (sharedWeights === undefined) {
      invariant(otherRuns === undefined, "a model is loaded again without shared weights");
      handle = createSession(model, options);
    } else {
      invariant(typeof model !== "string", "a model with shared weights is created from its bytes");
      using creation = new SharedCreation(model, options, sharedWeights);
      handle = creation.run();
      if (otherRuns !== undefined) other = new OtherSession(model, options, sharedWeights, otherRuns);
    }
    created.adopt(handle, (session) => api.ReleaseSession(session));
    const session = new Session(handle, other, options);
    created.move();
    return session;
  }

  /** Disposed of with the session, or earlier. */
  createBinding(): IoBinding {
    const binding = new IoBinding(this);
    this.#bindings.add(binding);
    return binding;
  }

  /** The native handle, only for this folder. */
  get handle(): Pointer {
    invariant(this.#handle !== null, "the session is used after its disposal");
    return this.#handle;
  }

  /** For bindings: the native handles of all sessions that are loaded. */
  get handles(): readonly Pointer[] {
    const other = this.#other?.handle ?? null;
    return other === null ? [this.handle] : [this.handle, other];
  }

  /** For bindings: the native handle of the session that a run should use which begins now. */
  chooseHandle(): Pointer {
    return this.#other?.chooseHandle() ?? this.handle;
  }

  /** Whether a session is loaded beside the runs. Only the event loop of this thread notices that it is. */
  get isLoading(): boolean {
    return this.#other?.isLoading === true;
  }

  /** For bindings. */
  noteRun(binding: IoBinding): void {
    this.#lastRun = binding;
  }

  /** For a binding that is disposed of before the session. */
  forget(binding: IoBinding): void {
    this.#bindings.delete(binding);
    if (this.#lastRun === binding) this.#lastRun = null;
  }

  /**
   * Releases the memory that runs keep for the values between nodes, up to the size of the largest run; the next run
   * allocates it again. Returns false if nothing has run since the last call, or the memory is not the host's. Takes
   * 0.3 to 1.3 ms.
   */
  releaseRunMemory(): boolean {
    const binding = this.#lastRun;
    if (binding === null || this.deviceMemory !== null) return false;
    this.#lastRun = null;
    binding.releaseRunMemory();
    return true;
  }

  /**
   * Allocates a tensor where this session's kernels read and write. It lives until it or the session is disposed of. On
   * `cpu` it is an array of zeros that takes memory only where it is touched; elsewhere its contents are undefined.
   */
  allocateTensor<E extends TensorElementType>(elementType: E, shape: readonly number[]): Tensor<E> {
    invariant(this.#handle !== null, "the session is used after its disposal");
    if (this.deviceMemory !== null) return this.deviceMemory.allocate(elementType, shape);
    const buffer = new ArrayBuffer(checkedByteLength(elementType, shape));
    return Tensor.fromTypedArray(elementType, typedArrayOver(elementType, buffer), shape);
  }

  /** Disposes of the session's bindings and device tensors first. Disposing twice has no effect. */
  [Symbol.dispose](): void {
    if (this.#handle === null) return;
    for (const binding of this.#bindings) binding[Symbol.dispose]();
    this.deviceMemory?.[Symbol.dispose]();
    this.#other?.[Symbol.dispose]();
    ortEnvironment().api.ReleaseSession(this.#handle);
    this.#handle = null;
    openSessions.delete(this);
  }
}

/** Releases the memory of all sessions of this thread; returns whether there was any. */
export function releaseRunMemory(): boolean {
  let hasReleased = false;
  for (const session of openSessions) hasReleased = session.releaseRunMemory() || hasReleased;
  return hasReleased;
}

/** Whether a session of this thread is loaded beside the runs; see `Session.isLoading`. */
export function isLoadingSession(): boolean {
  for (const session of openSessions) if (session.isLoading) return true;
  return false;
}

/** Mutable: loaded on a thread of libuv's pool when it is first wanted. */
class OtherSession implements Disposable {
  readonly #model: Uint8Array;
  readonly #options: SessionOptions;
  readonly #sharedWeights: SharedWeights;
  readonly #runs: OtherRuns;
  #state: "waiting" | "loading" | "failed" | "disposed" | { readonly handle: Pointer } = "waiting";

  constructor(model: Uint8Array, options: SessionOptions, sharedWeights: SharedWeights, runs: OtherRuns) {
    this.#model = model;
    this.#options = { ...options, numThreads: runs.numThreads };
    this.#sharedWeights = sharedWeights;
    this.#runs = runs;
  }

  get isLoading(): boolean {
    return this.#state === "loading";
  }

  /** Null if it is not loaded. */
  get handle(): Pointer | null {
    return typeof this.#state === "object" ? this.#state.handle : null;
  }

  /** Null for a run of the first session. */
  chooseHandle(): Pointer | null {
    if (!this.#runs.areWanted()) return null;
    if (this.#state === "waiting") void this.#load();
    return this.handle;
  }

  [Symbol.dispose](): void {
    if (typeof this.#state === "object") ortEnvironment().api.ReleaseSession(this.#state.handle);
    this.#state = "disposed";
  }

  /** A session that does not load is not tried again: the first one computes the same. */
  async #load(): Promise<void> {
    this.#state = "loading";
    try {
      using creation = new SharedCreation(this.#model, this.#options, this.#sharedWeights);
      const handle = await creation.runAsync();
      if (this.isLoading) this.#state = { handle };
      else ortEnvironment().api.ReleaseSession(handle);
    } catch (error) {
      if (this.isLoading) this.#state = "failed";
      process.emitWarning(`A session with ${this.#runs.numThreads} threads could not be loaded: ${String(error)}`);
    }
  }
}

function readModel(path: string): Uint8Array {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new EngineError("runtime_failed", `The model ${path} cannot be read.`, { cause });
  }
}

/**
 * The caller releases it.
 *
 * @param model Its path, or its bytes.
 */
function createSession(model: string | Uint8Array, options: SessionOptions): Pointer {
  const { api, env, out } = ortEnvironment();
  const nativeOptions = createSessionOptions(options);
  try {
    if (typeof model === "string") {
      checkStatus(api, api.CreateSession(env, model, nativeOptions, out));
    } else {
      checkStatus(api, api.CreateSessionFromArray(env, model, model.byteLength, nativeOptions, out));
    }
  } finally {
    api.ReleaseSessionOptions(nativeOptions);
  }
  return out[0]!;
}

/** The creation of a session whose weights others have, too. Keeps the memory that ONNX Runtime reads meanwhile. */
class SharedCreation implements Disposable {
  readonly #nativeOptions: Pointer;
  readonly #out: OutPointer = new BigUint64Array(1);
  readonly #arguments: CreationArguments;

  constructor(model: Uint8Array, options: SessionOptions, { container, initializers }: SharedWeights) {
    const { api, env } = ortEnvironment();
    using created = new DisposableStack();
    this.#nativeOptions = created.adopt(createSessionOptions(options), (native) => api.ReleaseSessionOptions(native));
    for (const { name, value } of initializers) {
      checkStatus(api, api.AddInitializer(this.#nativeOptions, name, value));
    }
    created.move();
    this.#arguments = [env, model, model.byteLength, this.#nativeOptions, container, this.#out];
  }

  /** The caller releases the session. */
  run(): Pointer {
    const { api } = ortEnvironment();
    checkStatus(api, api.CreateSessionFromArrayWithPrepackedWeightsContainer(...this.#arguments));
    return this.#out[0]!;
  }

  /** As `run`, on a thread of libuv's pool. */
  async runAsync(): Promise<Pointer> {
    const { api } = ortEnvironment();
    const { promise, resolve, reject } = Promise.withResolvers<Status>();
    api.CreateSessionFromArrayWithPrepackedWeightsContainer.async(...this.#arguments, (error, status) => {
      if (error === null) resolve(status);
      else reject(error);
    });
    checkStatus(api, await promise);
    return this.#out[0]!;
  }

  [Symbol.dispose](): void {
    ortEnvironment().api.ReleaseSessionOptions(this.#nativeOptions);
  }
}

/** The caller releases them. */
function createSessionOptions(options: SessionOptions): Pointer {
  const { api, out } = ortEnvironment();
  checkStatus(api, api.CreateSessionOptions(out));
  const nativeOptions = out[0]!;
  try {
    checkStatus(api, api.SetSessionLogSeverityLevel(nativeOptions, LOG_SEVERITY_FATAL));
    checkStatus(api, api.SetIntraOpNumThreads(nativeOptions, options.numThreads ?? numUsableCores()));
    // ONNX Runtime would keep a pattern for every set of input shapes, and a batch's shapes change from step to step.
    checkStatus(api, api.DisableMemPattern(nativeOptions));
    const level = graphOptimizationLevels[options.graphOptimizationLevel ?? "all"];
    checkStatus(api, api.SetSessionGraphOptimizationLevel(nativeOptions, level));
    if (options.externalDataFolder !== undefined) {
      checkStatus(api, api.AddSessionConfigEntry(nativeOptions, externalDataFolderKey, options.externalDataFolder));
    }
    for (const [key, value] of Object.entries(options.configEntries ?? {})) {
      checkStatus(api, api.AddSessionConfigEntry(nativeOptions, key, value));
    }
    appendExecutionProvider(options.device, nativeOptions, options);
    return nativeOptions;
  } catch (error) {
    api.ReleaseSessionOptions(nativeOptions);
    throw error;
  }
}

type GetCount = (session: Pointer, count: OutPointer) => Status;
type GetName = (session: Pointer, index: number, allocator: Pointer, name: OutPointer) => Status;

function readNames(session: Pointer, getCount: GetCount, getName: GetName): string[] {
  const { api, allocator, out } = ortEnvironment();
  checkStatus(api, getCount(session, out));
  const names: string[] = [];
  const count = Number(out[0]);
  for (let index = 0; index < count; index++) {
    checkStatus(api, getName(session, index, allocator, out));
    const name = out[0]!;
    names.push(stringAt(name));
    checkStatus(api, api.AllocatorFree(allocator, name));
  }
  return names;
}
