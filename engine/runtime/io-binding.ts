/**
 * Inputs and outputs of one session, bound by name and kept between runs. A step rebinds only what changed.
 *
 * One tensor may be bound as both an input and an output. Kernels that allow it (attention with its past) then update
 * it in place.
 *
 * Cost on one core of a server CPU: 0.3-0.5 us per bind, 1.2 us to run a model of one small node, 0.4 us to create and
 * release a tensor. An output that ONNX Runtime allocates and `output` fetches costs 15 us, so a step loop binds its
 * own tensors.
 */
import { EngineError, invariant } from "../contract/errors.ts";
import type { DeviceMemory } from "./device-memory.ts";
import { takeHostTensor } from "./native-tensor.ts";
import { pointersAt } from "./ort-api.ts";
import type { OutPointer, Pointer, Status } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";
import { shrinkingRunOptions } from "./run-options.ts";
import type { RunOptions } from "./run-options.ts";
import type { Tensor } from "./tensor.ts";

/** Where ONNX Runtime allocates an output. */
export type OutputLocation = "host" | "device";

/** The part of a session that its bindings use. */
export interface BindingOwner {
  /** ONNX Runtime's sessions, which have the same inputs and outputs. */
  readonly handles: readonly Pointer[];
  /** The one of them for a run that begins now. */
  chooseHandle(): Pointer;
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  /** Null if the device uses the host's memory. */
  readonly deviceMemory: DeviceMemory | null;
  /** Called after each run. */
  noteRun(binding: IoBinding): void;
  forget(binding: IoBinding): void;
}

const outputCount: OutPointer = new BigUint64Array(1);

export class IoBinding implements Disposable {
  readonly #owner: BindingOwner;
  /** By ONNX Runtime's sessions, for each that has run this binding. Null after the disposal. */
  #handles: Map<Pointer, Pointer> | null = new Map();
  /** Of the last run. */
  #lastHandle: Pointer | null = null;
  // Keeps the arrays under bound tensors alive, because native code knows only their addresses.
  readonly #inputs = new Map<string, Tensor>();
  // In the order of the first binding of each name, which is ONNX Runtime's order of bound outputs.
  readonly #outputs = new Map<string, Tensor | OutputLocation>();
  /** Whether a run of `runAsync` is under way. */
  #isBusy = false;

  /** Only sessions call this. All other code calls `Session.createBinding`. */
  constructor(owner: BindingOwner) {
    this.#owner = owner;
    // At once, so that tensors on devices are copied when they are bound.
    this.#handleFor(owner.chooseHandle());
  }

  /**
   * Replaces the tensor bound under the name. A host tensor bound to a session on another device is copied there now:
   * bind it again after a change. Other tensors are read in place at each run.
   *
   * @throws EngineError `runtime_failed` for a name that the model does not have.
   */
  bindInput(name: string, tensor: Tensor): void {
    requireName("input", name, this.#inputs, this.#owner.inputNames);
    const { api } = ortEnvironment();
    for (const handle of this.#live.values()) checkStatus(api, api.BindInput(handle, name, tensor.value));
    this.#inputs.set(name, tensor);
  }

  /**
   * Binds the tensor that receives the output. Its shape must be the output's shape.
   *
   * @throws EngineError `runtime_failed` for a name that the model does not have.
   */
  bindOutput(name: string, tensor: Tensor): void {
    requireName("output", name, this.#outputs, this.#owner.outputNames);
    const { api } = ortEnvironment();
    for (const handle of this.#live.values()) checkStatus(api, api.BindOutput(handle, name, tensor.value));
    this.#outputs.set(name, tensor);
  }

  /**
   * Lets ONNX Runtime allocate the output at each run, with any shape. `output` fetches it.
   *
   * @throws EngineError `runtime_failed` for a name that the model does not have.
   */
  bindOutputToDevice(name: string, location: OutputLocation = "device"): void {
    requireName("output", name, this.#outputs, this.#owner.outputNames);
    this.#bindLocation(name, location);
    this.#outputs.set(name, location);
  }

  /**
   * Runs the model. Returns when all outputs are written.
   *
   * @throws EngineError `runtime_failed` with ONNX Runtime's message if inputs are missing or have a wrong type or
   * shape, or memory runs out; `device_lost` if no later run can succeed.
   */
  run(options: Pick<RunOptions, "handle"> | null = null): void {
    const { api } = ortEnvironment();
    const [session, binding] = this.#prepareRun();
    checkStatus(api, api.RunWithBinding(session, options?.handle ?? null, binding));
    this.#owner.noteRun(this);
  }

  /**
   * Runs the model on another thread. Until the promise settles, the binding, its tensors, the session and the options may
   * not be changed or disposed of; other bindings may run. The promise settles on the event loop of this thread.
   *
   * @throws EngineError as `run` does, also if `options` end the run early.
   */
  async runAsync(options: Pick<RunOptions, "handle">): Promise<void> {
    const { api } = ortEnvironment();
    const [session, binding] = this.#prepareRun();
    const { promise, resolve, reject } = Promise.withResolvers<Status>();
    this.#isBusy = true;
    try {
      api.RunWithBinding.async(session, options.handle, binding, (error, status) => {
        if (error === null) resolve(status);
        else reject(error);
      });
      checkStatus(api, await promise);
    } finally {
      this.#isBusy = false;
      this.#owner.noteRun(this);
    }
  }

  /**
   * See `Session.releaseRunMemory`; requires the same inputs as a run. Discards outputs that ONNX Runtime allocated.
   */
  releaseRunMemory(): void {
    invariant(!this.#isBusy, "the memory of a run is released while it is under way");
    const { api } = ortEnvironment();
    for (const session of this.#owner.handles) {
      // The memory can only be released at the end of a run. This run ends, with an error, before its first node.
      const status = api.RunWithBinding(session, shrinkingRunOptions().handle, this.#handleFor(session));
      if (status !== null) api.ReleaseStatus(status);
    }
  }

  /**
   * The output of the last run: the tensor bound under the name, or a new one if ONNX Runtime allocated it. The caller
   * disposes of a new one.
   */
  output(name: string): Tensor {
    const bound = this.#outputs.get(name);
    invariant(bound !== undefined, `no output is bound under the name ${name}`);
    if (typeof bound !== "string") return bound;
    const { api } = ortEnvironment();
    const values = this.#boundValues();
    const index = [...this.#outputs.keys()].indexOf(name);
    values.forEach((value, position) => {
      if (position !== index) api.ReleaseValue(value);
    });
    const { deviceMemory } = this.#owner;
    return bound === "device" && deviceMemory !== null
      ? deviceMemory.adopt(values[index]!)
      : takeHostTensor(values[index]!);
  }

  clearInputs(): void {
    for (const handle of this.#live.values()) ortEnvironment().api.ClearBoundInputs(handle);
    this.#inputs.clear();
  }

  clearOutputs(): void {
    for (const handle of this.#live.values()) ortEnvironment().api.ClearBoundOutputs(handle);
    this.#outputs.clear();
  }

  /** Bound tensors still belong to the caller. Disposing twice has no effect. */
  [Symbol.dispose](): void {
    if (this.#handles === null) return;
    invariant(!this.#isBusy, "a binding is disposed of while its run is under way");
    for (const handle of this.#handles.values()) ortEnvironment().api.ReleaseIoBinding(handle);
    this.#handles = null;
    this.#inputs.clear();
    this.#outputs.clear();
    this.#owner.forget(this);
  }

  get #live(): Map<Pointer, Pointer> {
    invariant(this.#handles !== null, "the binding is used after its disposal");
    return this.#handles;
  }

  /**
   * Created when the session first runs the binding. Tensors that are bound to a session with several native ones must not
   * be disposed of before their binding: they are bound again here.
   */
  #handleFor(session: Pointer): Pointer {
    const known = this.#live.get(session);
    if (known !== undefined) return known;
    const { api, out } = ortEnvironment();
    checkStatus(api, api.CreateIoBinding(session, out));
    using created = new DisposableStack();
    const handle = created.adopt(out[0]!, (binding) => api.ReleaseIoBinding(binding));
    for (const [name, tensor] of this.#inputs) checkStatus(api, api.BindInput(handle, name, tensor.value));
    for (const [name, bound] of this.#outputs) {
      if (typeof bound === "string") bindLocation(handle, name, this.#memoryOf(bound));
      else checkStatus(api, api.BindOutput(handle, name, bound.value));
    }
    created.move();
    this.#live.set(session, handle);
    return handle;
  }

  /** Returns what to run. */
  #prepareRun(): [session: Pointer, binding: Pointer] {
    invariant(!this.#isBusy, "a binding is run while its last run is under way");
    // ONNX Runtime would write into a value left by the previous run, with its old shape.
    for (const [name, bound] of this.#outputs) if (typeof bound === "string") this.#bindLocation(name, bound);
    const session = this.#owner.chooseHandle();
    this.#lastHandle = this.#handleFor(session);
    return [session, this.#lastHandle];
  }

  #bindLocation(name: string, location: OutputLocation): void {
    const memoryInfo = this.#memoryOf(location);
    for (const handle of this.#live.values()) bindLocation(handle, name, memoryInfo);
  }

  #memoryOf(location: OutputLocation): Pointer {
    const { hostMemory } = ortEnvironment();
    return location === "device" ? (this.#owner.deviceMemory?.memoryInfo ?? hostMemory) : hostMemory;
  }

  /** The caller releases each of them. */
  #boundValues(): Pointer[] {
    const { api, allocator, out } = ortEnvironment();
    invariant(this.#lastHandle !== null, "the outputs of a run are read before the first one");
    checkStatus(api, api.GetBoundOutputValues(this.#lastHandle, allocator, out, outputCount));
    const list = out[0]!;
    const values = pointersAt(list, Number(outputCount[0]));
    checkStatus(api, api.AllocatorFree(allocator, list));
    return values;
  }
}

function bindLocation(binding: Pointer, name: string, memoryInfo: Pointer): void {
  const { api } = ortEnvironment();
  checkStatus(api, api.BindOutputToDevice(binding, name, memoryInfo));
}

// A binding for which ONNX Runtime rejected a name is broken for good, so names are checked before.
function requireName(
  kind: "input" | "output",
  name: string,
  bound: ReadonlyMap<string, unknown>,
  known: readonly string[],
): void {
  if (bound.has(name) || known.includes(name)) return;
  throw new EngineError("runtime_failed", `The model has no ${kind} ${name}; its ${kind}s are ${known.join(", ")}.`);
}
