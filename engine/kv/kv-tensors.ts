/** Tensors of keys and values, one of each per layer, and their binding. */
import type { DecoderShape, KvHeads } from "../models/built-model.ts";
import { layersOf, presentNames } from "../models/decoder-shape.ts";
import { numElements } from "../runtime/element-type.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { KvView } from "./kv-cache.ts";
import type { KvShape } from "./memory-plan.ts";

/**
 * The keys of all layers, then their values. Nothing stays allocated if one of them does not fit.
 *
 * @param shapeOf Of the keys or values of one layer.
 */
export function allocateLayers(
  session: Pick<Session, "allocateTensor">,
  decoder: KvShape,
  shapeOf: (layer: KvHeads) => readonly number[],
): Tensor[] {
  using allocated = new DisposableStack();
  const layers = layersOf(decoder);
  const tensors = [...layers, ...layers].map((layer) =>
    allocated.use(session.allocateTensor(decoder.kvElementType, shapeOf(layer))),
  );
  allocated.move();
  return tensors;
}

export function splitLayers(tensors: readonly Tensor[]): {
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
} {
  return { keys: tensors.slice(0, tensors.length / 2), values: tensors.slice(tensors.length / 2) };
}

export function disposeAll(tensors: readonly Tensor[]): void {
  for (const tensor of tensors) tensor[Symbol.dispose]();
}

/** Shape of the keys or values of one layer. */
export function slotShape({ numKvHeads, headDim }: KvHeads, numSlots: number, maxLen: number): readonly number[] {
  return [numSlots, numKvHeads, maxLen, headDim];
}

/** Numbers in a slot of the layer that has most. */
export function largestSlot(decoder: KvShape, maxLen: number): number {
  return Math.max(...layersOf(decoder).map((layer) => numElements(slotShape(layer, 1, maxLen))));
}

export function totalBytes(tensors: readonly Tensor[]): number {
  return tensors.reduce((total, { byteLength }) => total + byteLength, 0);
}

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
