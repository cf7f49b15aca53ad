/**
 * What one session reads and writes, bound by name and kept between runs: a step binds anew only what changed.
 *
 * One tensor may be bound as an input and as an output: kernels that allow it (attention with its past) then update
 * it in place.
 *
 * Cost on one core of a server CPU: 0.3-0.5 us per bind, 1.2 us for the run of a model of one small node, 0.4 us to make
 * and release a tensor; 15 us for an output that ONNX Runtime allocates and `output` fetches, so a step loop binds
 * tensors of its own.
 */
import { EngineError, invariant } from "../contract/errors.ts";
import type { DeviceMemory } from "./device-memory.ts";
import { takeHostTensor } from "./native-tensor.ts";
import { pointersAt } from "./ort-api.ts";
import type { OutPointer, Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment, shrinkingRunOptions } from "./ort-environment.ts";
import type { Tensor } from "./tensor.ts";

/** Where ONNX Runtime allocates an output. */
export type OutputLocation = "host" | "device";

/** The session as its bindings see it. */
export interface BindingOwner {
  readonly handle: Pointer;
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  /** Null where the device's memory is the host's. */
  readonly deviceMemory: DeviceMemory | null;
  /** Called after each run. */
  noteRun(binding: IoBinding): void;
  forget(binding: IoBinding): void;
}

const outputCount: OutPointer = new BigUint64Array(1);

export class IoBinding implements Disposable {
  readonly #owner: BindingOwner;
  #binding: Pointer | null;
  // Keeps the arrays under bound tensors alive: native code knows only their addresses.
  readonly #inputs = new Map<string, Tensor>();
  // In the order of the first binding of each name, which is ONNX Runtime's order of bound outputs.
  readonly #outputs = new Map<string, Tensor | OutputLocation>();

  /** For sessions; everyone else calls `Session.createBinding`. */
  constructor(owner: BindingOwner, binding: Pointer) {
    this.#owner = owner;
    this.#binding = binding;
  }

  /**
   * Replaces what was bound under the name. A tensor on the host bound to a session on another device is copied there
   * now: bind it again after a change. Everything else is read where it lies, at each run.
   *
   * @throws EngineError `runtime_failed` for a name the model does not have.
   */
  bindInput(name: string, tensor: Tensor): void {
    requireName("input", name, this.#inputs, this.#owner.inputNames);
    const { api } = ortEnvironment();
    checkStatus(api, api.BindInput(this.#handle, name, tensor.value));
    this.#inputs.set(name, tensor);
  }

  /**
   * The output is written into this tensor, whose shape must be the output's.
   *
   * @throws EngineError `runtime_failed` for a name the model does not have.
   */
  bindOutput(name: string, tensor: Tensor): void {
    requireName("output", name, this.#outputs, this.#owner.outputNames);
    const { api } = ortEnvironment();
    checkStatus(api, api.BindOutput(this.#handle, name, tensor.value));
    this.#outputs.set(name, tensor);
  }

  /**
   * ONNX Runtime allocates the output at each run, whatever its shape; `output` fetches it.
   *
   * @throws EngineError `runtime_failed` for a name the model does not have.
   */
  bindOutputToDevice(name: string, location: OutputLocation = "device"): void {
    requireName("output", name, this.#outputs, this.#owner.outputNames);
    this.#bindLocation(name, location);
    this.#outputs.set(name, location);
  }

  /**
   * Runs the model; returns when all outputs are written.
   *
   * @throws EngineError `runtime_failed` with ONNX Runtime's message: inputs missing, of a wrong type or shape.
   */
  run(): void {
    const { api } = ortEnvironment();
    // A value left by the run before would be taken as the place to write to, at its old shape.
    for (const [name, bound] of this.#outputs) if (typeof bound === "string") this.#bindLocation(name, bound);
    checkStatus(api, api.RunWithBinding(this.#owner.handle, null, this.#handle));
    this.#owner.noteRun(this);
  }

  /** As `Session.releaseRunMemory`; needs what a run needs. Outputs that ONNX Runtime allocated are gone afterwards. */
  releaseRunMemory(): void {
    const { api } = ortEnvironment();
    // The memory is reached at the end of a run only; this one ends, with an error, before its first node.
    const status = api.RunWithBinding(this.#owner.handle, shrinkingRunOptions(), this.#handle);
    if (status !== null) api.ReleaseStatus(status);
  }

  /**
   * The output of the last run: the tensor bound under the name, or a new one, the caller's to dispose of, where ONNX
   * Runtime allocated it.
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
      ? deviceMemory.adopt(values[index])
      : takeHostTensor(values[index]);
  }

  clearInputs(): void {
    ortEnvironment().api.ClearBoundInputs(this.#handle);
    this.#inputs.clear();
  }

  clearOutputs(): void {
    ortEnvironment().api.ClearBoundOutputs(this.#handle);
    this.#outputs.clear();
  }

  /** Bound tensors stay the caller's; disposing twice does nothing. */
  [Symbol.dispose](): void {
    if (this.#binding === null) return;
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

  #bindLocation(name: string, location: OutputLocation): void {
    const { api, hostMemory } = ortEnvironment();
    const memoryInfo = location === "device" ? (this.#owner.deviceMemory?.memoryInfo ?? hostMemory) : hostMemory;
    checkStatus(api, api.BindOutputToDevice(this.#handle, name, memoryInfo));
  }

  /** Each is the caller's to release. */
  #boundValues(): Pointer[] {
    const { api, allocator, out } = ortEnvironment();
    checkStatus(api, api.GetBoundOutputValues(this.#handle, allocator, out, outputCount));
    const list = out[0];
    const values = pointersAt(list, Number(outputCount[0]));
    checkStatus(api, api.AllocatorFree(allocator, list));
    return values;
  }
}

// A binding that ONNX Runtime has refused a name is broken for good, so it never gets to see one the model lacks.
function requireName(
  kind: "input" | "output",
  name: string,
  bound: ReadonlyMap<string, unknown>,
  known: readonly string[],
): void {
  if (bound.has(name) || known.includes(name)) return;
  throw new EngineError("runtime_failed", `The model has no ${kind} ${name}; its ${kind}s are ${known.join(", ")}.`);
}
