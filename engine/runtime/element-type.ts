/** Element types of tensors: their numbers in ONNX, their sizes and the typed arrays that hold them. */
import { EngineError } from "../contract/errors.ts";

/** The typed arrays that a tensor of each element type may use. */
export interface TensorArrays {
  readonly float32: Float32Array;
  /** `Uint16Array` holds the bits of each number. */
  readonly float16: Float16Array | Uint16Array;
  /** `Uint16Array` holds the bits of each number: there is no array of its own. */
  readonly bfloat16: Uint16Array;
  readonly int64: BigInt64Array;
  readonly int32: Int32Array;
  readonly int8: Int8Array;
  readonly uint8: Uint8Array;
  /** The bits of each number: there is no array of its own. */
  readonly float8e4m3: Uint8Array;
  /** 0 or 1 each. */
  readonly bool: Uint8Array;
}

export type TensorElementType = keyof TensorArrays;
export type TensorData = TensorArrays[TensorElementType];

interface ElementType {
  /** `ONNXTensorElementDataType`. */
  readonly code: number;
  readonly bytesPerElement: number;
  readonly over: (buffer: ArrayBufferLike, byteOffset: number, length?: number) => TensorData;
}

const elementTypes: Readonly<Record<TensorElementType, ElementType>> = {
  float32: { code: 1, bytesPerElement: 4, over: (...span) => new Float32Array(...span) },
  uint8: { code: 2, bytesPerElement: 1, over: (...span) => new Uint8Array(...span) },
  int8: { code: 3, bytesPerElement: 1, over: (...span) => new Int8Array(...span) },
  int32: { code: 6, bytesPerElement: 4, over: (...span) => new Int32Array(...span) },
  int64: { code: 7, bytesPerElement: 8, over: (...span) => new BigInt64Array(...span) },
  bool: { code: 9, bytesPerElement: 1, over: (...span) => new Uint8Array(...span) },
  float16: { code: 10, bytesPerElement: 2, over: (...span) => new Float16Array(...span) },
  bfloat16: { code: 16, bytesPerElement: 2, over: (...span) => new Uint16Array(...span) },
  float8e4m3: { code: 17, bytesPerElement: 1, over: (...span) => new Uint8Array(...span) },
};

export function elementTypeCode(elementType: TensorElementType): number {
  return elementTypes[elementType].code;
}

/** @throws EngineError `runtime_failed` for a type that no tensor of Fovea has (strings, float64, ...). */
export function elementTypeOfCode(code: number): TensorElementType {
  for (const [name, elementType] of Object.entries(elementTypes)) {
    if (elementType.code === code) return name as TensorElementType;
  }
  throw new EngineError("runtime_failed", `Tensors of ONNX element type ${code} are not supported.`);
}

export function bytesPerElement(elementType: TensorElementType): number {
  return elementTypes[elementType].bytesPerElement;
}

/**
 * A typed array over the buffer, starting at `byteOffset`: `length` elements, or all up to the end. `float16` becomes a
 * `Float16Array`.
 */
export function typedArrayOver<E extends TensorElementType>(
  elementType: E,
  buffer: ArrayBufferLike,
  byteOffset = 0,
  length?: number,
): TensorArrays[E] {
  return elementTypes[elementType].over(buffer, byteOffset, length) as TensorArrays[E];
}

/** Number of elements of a shape; 1 for a scalar's []. */
export function numElements(shape: readonly number[]): number {
  let product = 1;
  for (const dimension of shape) product *= dimension;
  return product;
}
