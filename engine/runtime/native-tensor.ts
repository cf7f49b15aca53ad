/** Turns values that ONNX Runtime allocated into tensors. */
import { bytesPerElement, elementTypeOfCode, numElements, typedArrayOver } from "./element-type.ts";
import type { TensorElementType } from "./element-type.ts";
import { copyOfMemory } from "./ort-api.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";
import { Tensor } from "./tensor.ts";

export interface TypeAndShape {
  readonly elementType: TensorElementType;
  readonly shape: readonly number[];
}

export function readTypeAndShape(value: Pointer): TypeAndShape {
  const { api, out } = ortEnvironment();
  checkStatus(api, api.GetTensorTypeAndShape(value, out));
  const typeAndShape = out[0]!;
  try {
    const code = new Int32Array(1);
    checkStatus(api, api.GetTensorElementType(typeAndShape, code));
    checkStatus(api, api.GetDimensionsCount(typeAndShape, out));
    const shape = new BigInt64Array(Number(out[0]));
    checkStatus(api, api.GetDimensions(typeAndShape, shape, shape.length));
    return { elementType: elementTypeOfCode(code[0]!), shape: Array.from(shape, Number) };
  } finally {
    api.ReleaseTensorTypeAndShapeInfo(typeAndShape);
  }
}

/**
 * Copies a value in host memory into a tensor over Fovea's own memory, and releases the value. A view would outlive the
 * memory that ONNX Runtime frees.
 */
export function takeHostTensor(value: Pointer): Tensor {
  const { api, out } = ortEnvironment();
  try {
    const { elementType, shape } = readTypeAndShape(value);
    const numBytes = numElements(shape) * bytesPerElement(elementType);
    checkStatus(api, api.GetTensorMutableData(value, out));
    const bytes = numBytes === 0 ? new ArrayBuffer(0) : copyOfMemory(out[0]!, numBytes);
    return Tensor.fromTypedArray(elementType, typedArrayOver(elementType, bytes), shape);
  } finally {
    api.ReleaseValue(value);
  }
}
