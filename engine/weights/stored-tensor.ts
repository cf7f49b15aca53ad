/** A tensor in a file, which ONNX Runtime maps in place, and the forms in which checkpoints quantise matrices. */

/** ONNX's names. Those of `StoredOnlyType` occur in checkpoints only: no graph computes with them. */
export type ElementType =
  | StoredOnlyType
  | "float32"
  | "float16"
  | "bfloat16"
  | "int8"
  | "uint8"
  | "int32"
  | "int64"
  | "bool";

/** All but `float8e4m3` and `float8e8m0` are in tensors that no model here reads, such as buffers and scales of other programs. */
export type StoredOnlyType =
  | "float8e4m3"
  | "float8e4m3fnuz"
  | "float8e5m2"
  | "float8e5m2fnuz"
  | "float8e8m0"
  | "float64"
  | "complex64"
  | "int16"
  | "uint16"
  | "uint32"
  | "uint64";

export interface StoredTensor {
  readonly name: string;
  readonly elementType: ElementType;
  readonly shape: readonly number[];
  /** Absolute path. */
  readonly file: string;
  readonly byteOffset: number;
  readonly byteLength: number;
  /**
   * How the checkpoint quantises this matrix, if it does. `shape` is then that of the matrix; type, position and length
   * are those of its codes.
   */
  readonly quantised?: QuantisedMatrix;
  /**
   * For a matrix that the file has column by column: the elements from one column to the next. Elements of a column are
   * successive. Default: it is stored row by row.
   */
  readonly columnStride?: number;
  /** What a LoRA adapter adds to this matrix. */
  readonly update?: LowRankUpdate;
}

/** A tensor that a graph reads from a file as it is, under its name in the graph. */
export interface ExternalTensor extends Pick<StoredTensor, "name" | "shape" | "file" | "byteOffset" | "byteLength"> {
  readonly elementType: Exclude<ElementType, StoredOnlyType>;
}

/** The matrix becomes `matrix + scale * up x down`; with magnitudes (DoRA), each row of that is brought to its length. */
export interface LowRankUpdate {
  /** Float [rank, in]. */
  readonly down: StoredTensor;
  /** Float [out, rank]. */
  readonly up: StoredTensor;
  readonly scale: number;
  /** Float [out]: the lengths of the rows; null to leave them as they are. */
  readonly magnitudes: StoredTensor | null;
}

/** A quantised matrix [out, in]: its codes and everything that turns them into numbers. */
export type QuantisedMatrix = GroupedMatrix | Float8Matrix | Float4Matrix | Int8RowsMatrix | CodebookMatrix;

/** Order of the codes of a `GroupedMatrix` in its tensors. */
export type CodePacking =
  /** int32 [in * bits / 32, out]: a word has successive inputs. Scales [groups, out], zero points [groups, out * bits / 32]. */
  | "gptq"
  /** int32 [in, out / 8]: a word has eight successive outputs in the order 0, 2, 4, 6, 1, 3, 5, 7. Else as gptq. */
  | "awq"
  /** int32 [out, in * bits / 32]. Scales [out, groups], zero points [out * bits / 32, groups]. */
  | "compressed-tensors"
  /** int8 [out, in], 128 lower than a code. Scales and zero points [out, groups]. */
  | "int8";

/** An element is `(code - zeroPoint) * scale`, with a scale for each group of successive inputs of an output. */
export interface GroupedMatrix {
  readonly kind: "grouped";
  readonly bits: 4 | 8;
  /** The number of inputs if each output has one scale. */
  readonly groupSize: number;
  readonly packing: CodePacking;
  readonly codes: StoredTensor;
  /** Float, in the shape of the packing, or one value for the whole matrix. */
  readonly scales: StoredTensor;
  /** Null if all are 2^(bits - 1). */
  readonly zeroPoints: StoredTensor | null;
  /** Whether the stored zero points are one too low (version 1 of GPTQ's format). */
  readonly hasLowZeroPoints: boolean;
  /** The input of each position once inputs are sorted by group; null if they are stored in that order. */
  readonly columnOrder: Int32Array | null;
  /** Whether activations are meant to be quantised as well: to 8 bits, with a scale per token. */
  readonly quantisesActivations: boolean;
}

/** Whether products take the integers of the matrix with activations that are floats. */
export function isStoredInBlocks(matrix: QuantisedMatrix | undefined): matrix is GroupedMatrix {
  return matrix?.kind === "grouped" && !matrix.quantisesActivations;
}

/** An element is `code * scale`, with a scale for each block of `blockShape`. */
export interface Float8Matrix {
  readonly kind: "float8";
  /** float8e4m3 [out, in]. */
  readonly codes: StoredTensor;
  /**
   * [ceil(out / rows), ceil(in / columns)] in any shape with as many elements: float, or the exponents of powers of two
   * (float8e8m0, also as uint8). Codes and float scales may be by column.
   */
  readonly scales: StoredTensor;
  readonly blockShape: readonly [rows: number, columns: number];
  /** The row of the blocks with which the matrix begins, if it shares them with another one. Default 0. */
  readonly firstRow?: number;
}

/**
 * NVFP4 and MXFP4: an element is `code * scale`, with a scale for each block of successive inputs. The earlier of two
 * codes (E2M1) is in the low half of a byte.
 */
export interface Float4Matrix {
  readonly kind: "float4";
  /** uint8 [out, in / 2]. */
  readonly codes: StoredTensor;
  /** [out, in / blockSize]: float8e4m3, or the exponents of powers of two (float8e8m0, also as uint8). */
  readonly scales: StoredTensor;
  readonly blockSize: number;
  /** Of all scales: float32, one element. They are multiplied by it, or divided. */
  readonly common: { readonly tensor: StoredTensor; readonly isDivisor: boolean } | null;
}

/** bitsandbytes' LLM.int8(): an element is `code * scale / 127`, with a scale for each output. */
export interface Int8RowsMatrix {
  readonly kind: "int8-rows";
  /** int8 [out, in]. */
  readonly codes: StoredTensor;
  /** float32 [out]. */
  readonly scales: StoredTensor;
}

/**
 * bitsandbytes' NF4 and FP4: an element is `codebook[code] * scale`, with a scale for each block of successive elements
 * in row-major order. The earlier of two codes is in the high half of a byte.
 */
export interface CodebookMatrix {
  readonly kind: "codebook";
  /** uint8 [ceil(out * in / 2), 1]. */
  readonly codes: StoredTensor;
  /** float32 [16]. */
  readonly codebook: StoredTensor;
  readonly blockSize: number;
  /** float32 [blocks], or uint8 [blocks] if they are quantised as well. */
  readonly scales: StoredTensor;
  /** A scale is then `codebook[code] * scales[block / blockSize] + offset`. */
  readonly nested: {
    /** float32 [256]. */
    readonly codebook: StoredTensor;
    readonly blockSize: number;
    /** float32. */
    readonly scales: StoredTensor;
    readonly offset: number;
  } | null;
}
