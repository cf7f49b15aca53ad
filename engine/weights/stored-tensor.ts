/** A tensor in a file, which ONNX Runtime maps in place. */

export type ElementType = "float32" | "float16" | "bfloat16" | "int8" | "uint8" | "int32" | "int64";

export interface StoredTensor {
  readonly name: string;
  readonly elementType: ElementType;
  readonly shape: readonly number[];
  /** Absolute path. */
  readonly file: string;
  readonly byteOffset: number;
  readonly byteLength: number;
}
