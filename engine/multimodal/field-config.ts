/** Splits the tensors of a processed batch into its items. */
import { EngineError, invariant } from "../contract/errors.ts";
import { bytesPerElement, numElements, typedArrayOver } from "../runtime/element-type.ts";
import type { TensorData } from "../runtime/element-type.ts";
import type { ItemTensor } from "./processed-item.ts";

/** One tensor for all items, or one per item if their shapes differ. */
export type BatchedTensor = ItemTensor | readonly ItemTensor[];

export interface FieldSlice {
  readonly start: number;
  readonly end: number;
}

export type FieldConfig =
  /** Item i is row i of the first dimension, or tensor i of a list. */
  | { readonly kind: "batched" }
  /** Item i is the i-th slice along a dimension. */
  | { readonly kind: "flat"; readonly slices: readonly FieldSlice[]; readonly dimension: number }
  /** Every item has the whole tensor. */
  | { readonly kind: "shared"; readonly numItems: number };

export const fieldConfig = {
  batched: (): FieldConfig => ({ kind: "batched" }),
  flat: (slices: readonly FieldSlice[], dimension = 0): FieldConfig => ({ kind: "flat", slices, dimension }),
  /** Item i has `sizes[i]` along the dimension, one after the other. `sizes` contains integers in one dimension. */
  flatFromSizes(sizes: ItemTensor, dimension = 0): FieldConfig {
    if (sizes.shape.length !== 1) {
      throw new EngineError("internal", `Sizes of items have one dimension; these have [${sizes.shape.join(", ")}].`);
    }
    let start = 0;
    const slices: FieldSlice[] = [];
    for (const size of sizes.data) {
      const end = start + Number(size);
      slices.push({ start, end });
      start = end;
    }
    return { kind: "flat", slices, dimension };
  },
  shared: (numItems: number): FieldConfig => ({ kind: "shared", numItems }),
};

/** Returns views if an item's elements are contiguous, otherwise copies. */
export function splitField(field: BatchedTensor, config: FieldConfig): readonly ItemTensor[] {
  switch (config.kind) {
    case "batched": {
      if (isList(field)) return field;
      const [numItems, ...shape] = field.shape;
      invariant(numItems !== undefined, "a batched field has a dimension of items");
      return Array.from({ length: numItems }, (_, item) => reshaped(sliced(field, 0, item, item + 1), shape));
    }
    case "flat": {
      if (!isList(field)) return config.slices.map(({ start, end }) => sliced(field, config.dimension, start, end));
      invariant(config.dimension === 0, "lists have one dimension to be sliced along");
      return config.slices.map(({ start, end }) => joined(field.slice(start, end)));
    }
    case "shared":
      invariant(!isList(field), "a shared field is one tensor");
      return Array.from({ length: config.numItems }, () => field);
    default:
      return config satisfies never;
  }
}

/** Returns each item's tensors. Fields without a config are dropped. The others must have equally many items. */
export function splitFields(
  fields: ReadonlyMap<string, BatchedTensor>,
  configs: Readonly<Record<string, FieldConfig>>,
): readonly ReadonlyMap<string, ItemTensor>[] {
  const split = Object.entries(configs).flatMap(([name, config]) => {
    const field = fields.get(name);
    return field === undefined ? [] : [{ name, items: splitField(field, config) }];
  });
  const numItems = split[0]?.items.length ?? 0;
  if (split.some(({ items }) => items.length !== numItems)) {
    const found = split.map(({ name, items }) => `${name} of ${items.length}`).join(", ");
    throw new EngineError("internal", `The processed tensors have different numbers of images: ${found}.`);
  }
  return Array.from({ length: numItems }, (_, item) => new Map(split.map(({ name, items }) => [name, items[item]!])));
}

function isList(field: BatchedTensor): field is readonly ItemTensor[] {
  return Array.isArray(field);
}

function reshaped(tensor: ItemTensor, shape: readonly number[]): ItemTensor {
  return { ...tensor, shape };
}

/** `[start, end)` of one dimension; ends are clamped to the tensor's, as in slices of arrays. */
function sliced(tensor: ItemTensor, dimension: number, start: number, end: number): ItemTensor {
  const { shape, data } = tensor;
  invariant(dimension < shape.length, `dimension ${dimension} of [${shape.join(", ")}]`);
  const first = Math.min(start, shape[dimension]!);
  const last = Math.max(first, Math.min(end, shape[dimension]!));
  const inner = numElements(shape.slice(dimension + 1));
  const outer = numElements(shape.slice(0, dimension));
  const target = shape.with(dimension, last - first);
  if (outer === 1) return withData(tensor, data.subarray(first * inner, last * inner), target);
  const copy = emptyLike(tensor, numElements(target));
  const length = (last - first) * inner;
  for (let index = 0; index < outer; index += 1) {
    const from = (index * shape[dimension]! + first) * inner;
    copyElements(copy, index * length, data.subarray(from, from + length));
  }
  return withData(tensor, copy, target);
}

/** Concatenates along the first dimension; the other dimensions are equal. */
function joined(tensors: readonly ItemTensor[]): ItemTensor {
  const [first] = tensors;
  invariant(first !== undefined, "there is a tensor to join");
  const [, ...inner] = first.shape;
  let length = 0;
  for (const { shape, elementType } of tensors) {
    invariant(
      elementType === first.elementType && shape.slice(1).join() === inner.join(),
      `tensors of images have the shapes [${shape.join(", ")}] and [${first.shape.join(", ")}]`,
    );
    length += shape[0]!;
  }
  const data = emptyLike(first, length * numElements(inner));
  let offset = 0;
  for (const tensor of tensors) {
    copyElements(data, offset, tensor.data);
    offset += tensor.data.length;
  }
  return withData(first, data, [length, ...inner]);
}

function emptyLike({ elementType }: ItemTensor, length: number): TensorData {
  return typedArrayOver(elementType, new ArrayBuffer(length * bytesPerElement(elementType)));
}

/** Copies bytes: one array may contain the bits of half-precision numbers and the other the numbers. */
function copyElements(to: TensorData, offset: number, from: TensorData): void {
  const bytes = new Uint8Array(to.buffer, to.byteOffset, to.byteLength);
  bytes.set(new Uint8Array(from.buffer, from.byteOffset, from.byteLength), offset * to.BYTES_PER_ELEMENT);
}

function withData({ elementType }: ItemTensor, data: TensorData, shape: readonly number[]): ItemTensor {
  return { elementType, shape, data } as ItemTensor;
}
