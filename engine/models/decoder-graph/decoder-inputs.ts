/**
 * A run as a decoder family sees it: one row for each token. KV layout and device decide how tokens form sequences and
 * where their keys and values are; only the implementations of `DecoderInputs` know it.
 */
import type { RotaryTables } from "../../graph/contrib-ops.ts";
import type { ConvolutionActivation } from "../../graph/recurrent-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { JointProjection } from "../linear.ts";

export interface DecoderInputs {
  /** int64 [N]. */
  readonly tokenIds: Value;
  /** int64 [R]: rows of the N tokens whose logits are requested. */
  readonly logitRows: Value;
  /** int64 [N]: the position of each token in its sequence. */
  positions(this: void): Value;
  /**
   * Puts image embeddings in their tokens' rows: [N, hiddenSize]. Adds the inputs for them to the graph.
   *
   * @param numLevels Number of further features that an embedding has for later layers.
   */
  withImages(this: void, embedded: Value, numLevels: number): TokensWithImages;
  /**
   * The run for layers that read the keys and values of earlier ones, which exist for all tokens by then: without tokens
   * before the first whose logits are requested. Where a form cannot leave them out, the run as it is.
   */
  tail(this: void): DecoderTail;
  /** [N, numHeads * headDim], before the output projection; the layer's cache becomes inputs and outputs of the graph. */
  attend(this: void, attention: CachedAttention): Value;
  /** A causal convolution of each channel over a sequence's tokens, and its activation: [N, channels]. */
  convolve(this: void, convolution: CachedConvolution): Value;
  /** The gated delta rule over a sequence's tokens: float32 [N, numValueHeads * valueDim]. */
  recur(this: void, recurrence: CachedRecurrence): Value;
}

export interface DecoderTail {
  readonly inputs: DecoderInputs;
  /** The rows of [N, features] that belong to the tokens of the tail. */
  keep(this: void, name: string, rows: Value): Value;
}

export interface TokensWithImages {
  readonly embedded: Value;
  /** [N, hiddenSize] each: the embeddings' further features in the rows of images, and zeros in those of text. */
  readonly levels: readonly Value[];
}

export interface CachedAttention {
  readonly name: string;
  /** Index among the layers with keys and values. */
  readonly layer: number;
  /**
   * For a layer without keys and values of its own: its index among such layers. `layer` is then the one whose keys and
   * values it reads, and `projected` has those of that layer, which are written into the same memory again. Kernels so
   * need no form for layers that only read, and the cache has nothing twice.
   */
  readonly reader?: number;
  /** Query, key and value, not rotated by `rotary`: [N, heads * headDim] each, or packed in this order. */
  readonly projected: JointProjection;
  /** Null if queries and keys are not to be rotated any more. */
  readonly rotary: Rotary | null;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Number of tokens that a position sees, including itself; null for all before it. */
  readonly localWindowSize: number | null;
  /** Factor of the products of query and key; null means `1 / sqrt(headDim)`. */
  readonly scale: number | null;
  /**
   * Which images the tokens of an image see: what lies before them; also the later tokens of the same image, those without
   * text between them; or also the tokens of all later images. A run then has whole images, or all of them; see
   * `DecoderShape.keepsImagesWhole` and `joinsImages`. Default: what lies before them.
   */
  readonly seenImages?: "before" | "own" | "all";
}

/** Its state is inputs and outputs of the graph; see `DecoderGraph`. */
export interface CachedConvolution {
  readonly name: string;
  /** Index among the recurrent layers. */
  readonly layer: number;
  /** [N, channels]. */
  readonly input: Value;
  /** [channels, 1, kernelSize]. */
  readonly kernel: Value;
  /** [channels]; null: none. */
  readonly bias: Value | null;
  readonly activation: ConvolutionActivation;
}

/** Its state is inputs and outputs of the graph; see `DecoderGraph` and `gatedDeltaRule`. */
export interface CachedRecurrence {
  readonly name: string;
  /** Index among the recurrent layers. */
  readonly layer: number;
  /** float32 [N, numKeyHeads * keyDim], scaled and normalised. */
  readonly query: Value;
  readonly key: Value;
  /** float32 [N, numValueHeads * valueDim]. */
  readonly value: Value;
  /** float32 [N, numValueHeads] each. */
  readonly decay: Value;
  readonly beta: Value;
  readonly numKeyHeads: number;
  readonly numValueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
}

export interface Rotary {
  /** [rows, rotaryDim / 2] each, where `rotaryDim` is the part of a head that is rotated, from its start. */
  readonly tables: RotaryTables;
  /** The row that a token uses: the row of its position in its sequence, or the row of its index in the run. */
  readonly rowOf: "position" | "token";
}
