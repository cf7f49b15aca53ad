/** Tensors of keys and values: one of each per layer. */
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { KvShape } from "./memory-plan.ts";

/** The keys of all layers, then their values. Nothing stays allocated if one of them does not fit. */
export function allocateLayers(
  session: Pick<Session, "allocateTensor">,
  decoder: KvShape,
  shape: readonly number[],
): Tensor[] {
  using allocated = new DisposableStack();
  const tensors = Array.from({ length: 2 * decoder.numLayers }, () =>
    allocated.use(session.allocateTensor(decoder.kvElementType, shape)),
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

/** Of the keys or values of one layer. */
export function slotShape({ numKvHeads, headDim }: KvShape, numSlots: number, maxLen: number): readonly number[] {
  return [numSlots, numKvHeads, maxLen, headDim];
}

export function totalBytes(tensors: readonly Tensor[]): number {
  return tensors.reduce((total, { byteLength }) => total + byteLength, 0);
}
