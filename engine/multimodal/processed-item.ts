/** The output of a model's processor for one item: everything that the caches keep and the engine needs. */
import type { TensorArrays, TensorElementType } from "../runtime/element-type.ts";
import type { ItemPromptUpdate } from "./resolved-prompt-update.ts";

/** Row-major. `data` has exactly the elements of `shape` ([] is one element) and may be a view of a larger buffer. */
export type ItemTensor<E extends TensorElementType = TensorElementType> = {
  [Type in E]: { readonly elementType: Type; readonly shape: readonly number[]; readonly data: TensorArrays[Type] };
}[E];

/** A tensor of this name, float32 [numEmbeddings, hiddenSize], replaces the vision encoder's output for the item. */
export const embeddingsField = "image_embeds";

/** Immutable: several requests share it. */
export interface ProcessedItem {
  /** By the vision encoder's input names (`pixel_values`, `image_grid_thw`), without the batch dimension. */
  readonly tensors: ReadonlyMap<string, ItemTensor>;
  /** Ways to place the item, preferred one first. The first that fits the prompt is used. Never empty. */
  readonly promptUpdates: readonly ItemPromptUpdate[];
}
