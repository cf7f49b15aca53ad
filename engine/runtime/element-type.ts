/** Element types of tensors: their numbers in ONNX, their sizes and the typed arrays that hold them. */
import { EngineError } from "../errors.ts";

/** Arrays that may lie under a tensor of each element type. */
export interface TensorArrays {
  readonly float32: Float32Array;
  /** `Uint16Array` holds the bits of each number. */
  readonly float16: Float16Array | Uint16Array;
  readonly int64: BigInt64Array;
  readonly int32: Int32Array;
  readonly int8: Int8Array;
  readonly uint8: Uint8Array;
  /** 0 or 1 each. */
  readonly bool: Uint8Array;
}

export type TensorElementType = keyof TensorArrays;
export type TensorData = TensorArrays[TensorElementType];

interface ElementType {
  /** `ONNXTensorElementDataType`. */
  readonly code: number;
  readonly bytesPerElement: number;
  readonly fromBuffer: (buffer: ArrayBuffer) => TensorData;
}

const elementTypes: Readonly<Record<TensorElementType, ElementType>> = {
  float32: { code: 1, bytesPerElement: 4, fromBuffer: (buffer) => new Float32Array(buffer) },
  uint8: { code: 2, bytesPerElement: 1, fromBuffer: (buffer) => new Uint8Array(buffer) },
  int8: { code: 3, bytesPerElement: 1, fromBuffer: (buffer) => new Int8Array(buffer) },
  int32: { code: 6, bytesPerElement: 4, fromBuffer: (buffer) => new Int32Array(buffer) },
  int64: { code: 7, bytesPerElement: 8, fromBuffer: (buffer) => new BigInt64Array(buffer) },
  bool: { code: 9, bytesPerElement: 1, fromBuffer: (buffer) => new Uint8Array(buffer) },
  float16: { code: 10, bytesPerElement: 2, fromBuffer: (buffer) => new Float16Array(buffer) },
};

export function elementTypeCode(elementType: TensorElementType): number {
  return elementTypes[elementType].code;
}

/** @throws EngineError `runtime_failed` for a type that no tensor of ours has (strings, float64, ...). */
export function elementTypeOfCode(code: number): TensorElementType {
  for (const [name, elementType] of Object.entries(elementTypes)) {
    if (elementType.code === code) return name as TensorElementType;
  }
  throw new EngineError("runtime_failed", `Tensors of ONNX element type ${code} are not supported.`);
}

export function bytesPerElement(elementType: TensorElementType): number {
  return elementTypes[elementType].bytesPerElement;
}

/** A typed array over the whole buffer; `float16` becomes a `Float16Array`. */
export function typedArrayOver<E extends TensorElementType>(elementType: E, buffer: ArrayBuffer): TensorArrays[E] {
  return elementTypes[elementType].fromBuffer(buffer) as TensorArrays[E];
}

/** Number of elements of a shape; 1 for a scalar's []. */
export function numElements(shape: readonly number[]): number {
  let product = 1;
  for (const dimension of shape) product *= dimension;
  return product;
}
