/** The decoder's session bound to a part of the KV cache. The binding is kept between steps. */
import type { KvView } from "../kv/kv-cache.ts";
import { bindKv } from "../kv/kv-tensors.ts";
import { bindStates } from "../kv/state-cache.ts";
import type { StateView } from "../kv/state-cache.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";

/** Mutable. Rebinds only what changed since its last run. */
export class DecoderBinding implements Disposable {
  readonly #kvView: KvView;
  readonly #stateView: StateView | null;
  readonly #binding: IoBinding;
  /** Owned tensors by name. A replaced tensor is disposed of. */
  readonly #inputs = new Map<string, Tensor>();
  readonly #outputs = new Map<string, Tensor>();
  /** On a device, binding an input copies it, so inputs are bound again for each run. */
  readonly #copiesInputs: boolean;

  /** Takes ownership of the views. `stateView` is for graphs with recurrent layers. Default: none. */
  constructor(session: Session, graph: DecoderGraph, kvView: KvView, stateView: StateView | null = null) {
    this.#kvView = kvView;
    this.#stateView = stateView;
    this.#copiesInputs = session.deviceMemory !== null;
    this.#binding = session.createBinding();
    bindKv(this.#binding, graph, kvView);
    if (stateView !== null) bindStates(this.#binding, stateView);
  }

  /** The run reads the tensor's memory when it starts. Takes ownership of the tensor. */
  setInput(name: string, tensor: Tensor): void {
    if (!this.#copiesInputs) this.#binding.bindInput(name, tensor);
    replace(this.#inputs, name, tensor);
  }

  /** The run writes the output into the tensor. Takes ownership of it. */
  setOutput(name: string, tensor: Tensor): void {
    this.#binding.bindOutput(name, tensor);
    replace(this.#outputs, name, tensor);
  }

  /** Blocks until outputs, KV and states are written; throws EngineError `runtime_failed`. */
  run(): void {
    if (this.#copiesInputs) {
      for (const [name, tensor] of this.#inputs) this.#binding.bindInput(name, tensor);
    }
    this.#binding.run();
  }

  [Symbol.dispose](): void {
    this.#binding[Symbol.dispose]();
    for (const tensors of [this.#inputs, this.#outputs]) {
      for (const tensor of tensors.values()) tensor[Symbol.dispose]();
    }
    this.#kvView[Symbol.dispose]();
    this.#stateView?.[Symbol.dispose]();
  }
}

function replace(tensors: Map<string, Tensor>, name: string, tensor: Tensor): void {
  tensors.get(name)?.[Symbol.dispose]();
  tensors.set(name, tensor);
}
