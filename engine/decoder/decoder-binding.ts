/** The decoder's session bound to a part of the KV cache. The binding is kept between steps. */
import type { DecoderGraph } from "../models/built-model.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { KvView } from "../kv/kv-cache.ts";

/** Mutable. Rebinds only what changed since its last run. */
export class DecoderBinding implements Disposable {
  readonly #kvView: KvView;
  readonly #binding: IoBinding;
  /** Owned tensors by input or output name. A replaced tensor is disposed of. */
  readonly #tensors = new Map<string, Tensor>();
  /** On a device, binding an input copies it, so inputs are bound again for each run. */
  readonly #copiesInputs: boolean;

  /** Takes ownership of `kvView`. */
  constructor(session: Session, { numLayers }: DecoderGraph, kvView: KvView) {
    this.#kvView = kvView;
    this.#copiesInputs = session.deviceMemory !== null;
    this.#binding = session.createBinding();
    for (let layer = 0; layer < numLayers; layer++) {
      this.#bindInPlace(`${layer}.key`, kvView.keys[layer]);
      this.#bindInPlace(`${layer}.value`, kvView.values[layer]);
    }
  }

  /** The run reads the tensor's memory when it starts. Takes ownership of the tensor. */
  setInput(name: string, tensor: Tensor): void {
    if (!this.#copiesInputs) this.#binding.bindInput(name, tensor);
    this.#replace(name, tensor);
  }

  /** The run writes logits into the tensor. Takes ownership of it. */
  setLogits(tensor: Tensor): void {
    this.#binding.bindOutput("logits", tensor);
    this.#replace("logits", tensor);
  }

  /** Blocks until logits and KV are written; throws EngineError `runtime_failed`. */
  run(): void {
    if (this.#copiesInputs) {
      for (const [name, tensor] of this.#tensors) if (name !== "logits") this.#binding.bindInput(name, tensor);
    }
    this.#binding.run();
  }

  [Symbol.dispose](): void {
    this.#binding[Symbol.dispose]();
    for (const tensor of this.#tensors.values()) tensor[Symbol.dispose]();
    this.#kvView[Symbol.dispose]();
  }

  #bindInPlace(name: string, tensor: Tensor): void {
    this.#binding.bindInput(`past.${name}`, tensor);
    this.#binding.bindOutput(`present.${name}`, tensor);
  }

  #replace(name: string, tensor: Tensor): void {
    this.#tensors.get(name)?.[Symbol.dispose]();
    this.#tensors.set(name, tensor);
  }
}
