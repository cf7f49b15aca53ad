/** Values of a graph under construction, with element type and shape as far as the builder knows them. */
import type { ElementType } from "../weights/stored-tensor.ts";

/** A known size, or the name of a size that is known at run time. Equal names are equal sizes. */
export type Dimension = number | string;
export type Shape = readonly Dimension[];

export interface Value {
  /** Unique in its graph. */
  readonly name: string;
  readonly elementType: ElementType;
  readonly shape: Shape;
}

/** `float32[N, 576]`, as error messages show it. */
export function describeValue(value: Value): string {
  return `${value.name}: ${value.elementType}${describeShape(value.shape)}`;
}

export function describeShape(shape: Shape): string {
  return `[${shape.join(", ")}]`;
}

export function sameShape(left: Shape, right: Shape): boolean {
  return left.length === right.length && left.every((dimension, axis) => dimension === right[axis]);
}

export function withLastSize(shape: Shape, size: Dimension): Shape {
  return [...shape.slice(0, -1), size];
}

/**
 * Shape of an element-wise result under ONNX's (NumPy's) rules; null if the two shapes do not fit. Two different names
 * count as different sizes, so shapes that cannot be proven to fit are rejected.
 */
export function broadcastShapes(left: Shape, right: Shape): Shape | null {
  const rank = Math.max(left.length, right.length);
  const result: Dimension[] = [];
  for (let axis = 0; axis < rank; axis++) {
    const leftSize = left[axis - rank + left.length] ?? 1;
    const rightSize = right[axis - rank + right.length] ?? 1;
    if (leftSize !== rightSize && leftSize !== 1 && rightSize !== 1) return null;
    result.push(leftSize === 1 ? rightSize : leftSize);
  }
  return result;
}
