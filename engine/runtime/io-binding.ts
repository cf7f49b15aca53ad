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
import { checkStatus, ortEnvironment, shrinkingRunOptions } from "./ort-environment.ts";
import type { RunOptions } from "./run-options.ts";
import type { Tensor } from "./tensor.ts";

/** Where ONNX Runtime allocates an output. */
export type OutputLocation = "host" | "device";

/** The part of a session that its bindings use. */
export interface BindingOwner {
  readonly handle: Pointer;
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
  #binding: Pointer | null;
  // Keeps the arrays under bound tensors alive, because native code knows only their addresses.
  readonly #inputs = new Map<string, Tensor>();
  // In the order of the first binding of each name, which is ONNX Runtime's order of bound outputs.
  readonly #outputs = new Map<string, Tensor | OutputLocation>();
  /** Whether a run of `runAsync` is under way. */
  #isBusy = false;

  /** Only sessions call this. All other code calls `Session.createBinding`. */
  constructor(owner: BindingOwner, binding: Pointer) {
    this.#owner = owner;
    this.#binding = binding;
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
    checkStatus(api, api.BindInput(this.#handle, name, tensor.value));
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
    checkStatus(api, api.BindOutput(this.#handle, name, tensor.value));
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
    this.#prepareRun();
    checkStatus(api, api.RunWithBinding(this.#owner.handle, options?.handle ?? null, this.#handle));
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
    this.#prepareRun();
    const { promise, resolve, reject } = Promise.withResolvers<Status>();
    this.#isBusy = true;
    try {
      api.RunWithBinding.async(this.#owner.handle, options.handle, this.#handle, (error, status) => {
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
    // The memory can only be released at the end of a run. This run ends, with an error, before its first node.
    const status = api.RunWithBinding(this.#owner.handle, shrinkingRunOptions(), this.#handle);
    if (status !== null) api.ReleaseStatus(status);
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
    ortEnvironment().api.ClearBoundInputs(this.#handle);
    this.#inputs.clear();
  }

  clearOutputs(): void {
    ortEnvironment().api.ClearBoundOutputs(this.#handle);
    this.#outputs.clear();
  }

  /** Bound tensors still belong to the caller. Disposing twice has no effect. */
  [Symbol.dispose](): void {
    if (this.#binding === null) return;
    invariant(!this.#isBusy, "a binding is disposed of while its run is under way");
    ortEnvironment().api.ReleaseIoBinding(this.#binding);
    this.#binding = null;
    this.#inputs.clear();
    this.#outputs.clear();
    this.#owner.forget(this);
  }

  get #handle(): Pointer {
    invariant(this.#binding !== null, "the binding is used after its disposal");
    return this.#binding;
  }

  #prepareRun(): void {
    invariant(!this.#isBusy, "a binding is run while its last run is under way");
    // ONNX Runtime would write into a value left by the previous run, with its old shape.
    for (const [name, bound] of this.#outputs) if (typeof bound === "string") this.#bindLocation(name, bound);
  }

  #bindLocation(name: string, location: OutputLocation): void {
    const { api, hostMemory } = ortEnvironment();
    const memoryInfo = location === "device" ? (this.#owner.deviceMemory?.memoryInfo ?? hostMemory) : hostMemory;
    checkStatus(api, api.BindOutputToDevice(this.#handle, name, memoryInfo));
  }

  /** The caller releases each of them. */
  #boundValues(): Pointer[] {
    const { api, allocator, out } = ortEnvironment();
    checkStatus(api, api.GetBoundOutputValues(this.#handle, allocator, out, outputCount));
    const list = out[0]!;
    const values = pointersAt(list, Number(outputCount[0]));
    checkStatus(api, api.AllocatorFree(allocator, list));
    return values;
  }
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
