/**
 * What a decoder family sees of a run: rows, one for each token. How the tokens are grouped into sequences, where their
 * keys and values lie and how attention reaches them depends on `kvLayout` and device, and only the implementations of
 * `DecoderInputs` know it.
 */
import type { RotaryTables } from "../../graph/contrib-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { JointProjection } from "../linear.ts";

export interface DecoderInputs {
  /** int64 [N]. */
  readonly tokenIds: Value;
  /** int64 [R]: rows of the N tokens whose logits are wanted. */
  readonly logitRows: Value;
  /** [N, hiddenSize] with the run's image embeddings in their tokens' places; adds the inputs for them to the graph. */
  withImages(this: void, embedded: Value): Value;
  /** [N, numHeads * headDim], before the output projection; the layer's cache becomes inputs and outputs of the graph. */
  attend(this: void, attention: CachedAttention): Value;
}

export interface CachedAttention {
  readonly name: string;
  readonly layer: number;
  /** Query, key and value, not rotated: [N, heads * headDim] each, or packed in this order. */
  readonly projected: JointProjection;
  readonly rotary: Rotary;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Tokens a position sees, itself included; null is all before it. */
  readonly localWindowSize: number | null;
  /** What products of query and key are multiplied by; null is `1 / sqrt(headDim)`. */
  readonly scale: number | null;
}

export interface Rotary {
  /** [rows, rotaryDim / 2] each, where `rotaryDim` is the part of a head that is rotated, from its start. */
  readonly tables: RotaryTables;
  /** Which row a token takes: that of its position in its sequence, or its own of the run's N. */
  readonly rowOf: "position" | "token";
}
