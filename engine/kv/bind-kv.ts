import type { DecoderShape } from "../models/built-model.ts";
import { presentNames } from "../models/kv-heads.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { KvView } from "./kv-cache.ts";

/** Binds the past and the present of all layers to the view's memory, and the outputs of layers that read them. */
export function bindKv(
  binding: IoBinding,
  decoder: Pick<DecoderShape, "numLayers" | "kvReaders">,
  { keys, values }: KvView,
): void {
  for (let layer = 0; layer < decoder.numLayers; layer++) {
    for (const [part, tensors] of [
      ["key", keys],
      ["value", values],
    ] as const) {
      binding.bindInput(`past.${layer}.${part}`, tensors[layer]!);
      for (const name of presentNames(decoder, layer, part)) binding.bindOutput(name, tensors[layer]!);
    }
  }
}
