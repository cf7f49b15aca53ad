/**
 * An image as far as the memory of encoding it depends on it: its integers, which are sizes and positions, and the shapes
 * of its pixels. The pixels of the largest image of some models take hundreds of megabytes, and any others do as well.
 */
import type { ItemTensor } from "../multimodal/processed-item.ts";
import { numElements } from "../runtime/element-type.ts";
import type { ImageFeature } from "./engine-request.ts";

export interface ImageOutline {
  readonly placeholder: ImageFeature["placeholder"];
  /** Shapes of the float32 tensors, by the vision encoder's input names. */
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  /** All others. */
  readonly tensors: ImageFeature["tensors"];
}

export function outlineOf({ placeholder, tensors }: Pick<ImageFeature, "placeholder" | "tensors">): ImageOutline {
  const isPixels = ({ elementType }: ItemTensor): boolean => elementType === "float32";
  return {
    placeholder,
    shapes: new Map(
      [...tensors].flatMap(([name, tensor]) => (isPixels(tensor) ? [[name, tensor.shape] as const] : [])),
    ),
    tensors: new Map([...tensors].filter(([, tensor]) => !isPixels(tensor))),
  };
}

/** An image of zeros. No cache may have it. */
export function imageOfOutline({ placeholder, shapes, tensors }: ImageOutline): ImageFeature {
  const zeros = [...shapes].map(([name, shape]): [string, ItemTensor] => [
    name,
    { elementType: "float32", shape, data: new Float32Array(numElements(shape)) },
  ]);
  return { placeholder, mmHash: "outline", tensors: new Map([...tensors, ...zeros]) };
}
