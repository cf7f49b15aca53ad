/** One item as a model's processor leaves it: all that the caches keep of it, and all that the engine needs of it. */
import type { TensorArrays, TensorElementType } from "../runtime/element-type.ts";
import type { ResolvedPromptUpdate } from "./resolved-prompt-update.ts";

/** Row-major; `data` has exactly the elements of `shape` ([] is one element) and may be a view of a larger buffer. */
export type ItemTensor<E extends TensorElementType = TensorElementType> = {
  [Type in E]: { readonly elementType: Type; readonly shape: readonly number[]; readonly data: TensorArrays[Type] };
}[E];

/** An item with a tensor of this name, float32 [numEmbeddings, hiddenSize], brings what the encoder would make of it. */
export const embeddingsField = "image_embeds";

/** Immutable: several requests share one. */
export interface ProcessedItem {
  /** By the vision encoder's input names (`pixel_values`, `image_grid_thw`), without the dimension of the batch. */
  readonly tensors: ReadonlyMap<string, ItemTensor>;
  /** Ways to place the item, the preferred one first; the first that fits the prompt is taken. Never empty. */
  readonly promptUpdates: readonly ResolvedPromptUpdate[];
}

/** Bytes of the tensors' elements. */
export function tensorBytesOf({ tensors }: ProcessedItem): number {
  let numBytes = 0;
  for (const { data } of tensors.values()) numBytes += data.byteLength;
  return numBytes;
}
