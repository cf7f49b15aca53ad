/** The requests of a model for its weights, and the forms in which it gets them. */
import type { StoredTensor } from "./stored-tensor.ts";

export type WeightFormat =
  /** As float: mapped from the checkpoint if it is stored in that type, otherwise converted once. */
  | { readonly kind: "plain"; readonly elementType: "float32" | "float16" | "bfloat16" }
  /**
   * `MatMulNBits` of [out, in]: `weight` uint8 [out, ceil(in / blockSize), blockSize * bits / 8] (zero point 2^(bits-1)),
   * `scales` float32 [out * ceil(in / blockSize)].
   */
  | { readonly kind: "blockwise"; readonly bits: 4 | 8; readonly blockSize: number }
  /** W8A8: `weight` int8 [in, out] (transposed for `MatMulInteger`), symmetric, `scales` float32 [out]. */
  | { readonly kind: "per-channel-int8" }
  /**
   * The layout of `blockwise` with the codes that the checkpoint has, and `zeroPoints` uint8
   * [out * ceil(blocks * bits / 8)] if there are any.
   */
  | {
      readonly kind: "stored-blocks";
      readonly bits: 4 | 8;
      readonly blockSize: number;
      readonly hasZeroPoints: boolean;
    }
  /** The layout of `per-channel-int8` with the codes that the checkpoint has. */
  | { readonly kind: "stored-channels" };

export interface WeightRequest {
  /** Name of the initializer in the graph. */
  readonly name: string;
  /** Tensors of the checkpoint; several are concatenated along axis 0 (packed QKV, gate and up). */
  readonly sources: readonly string[];
  /**
   * Shape after concatenation. Any other shape in the checkpoint is an `invalid_checkpoint` error that names the
   * tensor.
   */
  readonly shape: readonly number[];
  readonly format: WeightFormat;
  /**
   * A matrix of the checkpoint. Each run of as many rows as it has inputs is stored in the order of its inputs once these
   * are sorted by group; see `GroupedMatrix.columnOrder`. Only of `stored-blocks`. Default: rows stay in order.
   */
  readonly rowOrder?: string;
  /**
   * Whether sources are pairs of matrices of equal shape, of which the rows are stored by turns: the first rows of both,
   * then the second ones. Only of `plain`. Default false.
   */
  readonly alternatesPairs?: true;
  /**
   * Rows of the only source, in this order, in place of all. The checkpoint must have them as floats. Only of `plain`.
   */
  readonly rows?: readonly number[];
}

export interface PreparedWeight {
  readonly request: WeightRequest;
  readonly weight: StoredTensor;
  /** Null for `plain`. */
  readonly scales: StoredTensor | null;
  /** Null unless the format has zero points of its own. */
  readonly zeroPoints: StoredTensor | null;
}
