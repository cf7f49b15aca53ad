/**
 * A checkpoint turned into ONNX files whose weights lie in mapped files: what `models` hands to `core`.
 * Plain data, so that it crosses to the engine thread.
 */

export type KvElementType = "float32" | "float16";

/**
 * Inputs (B sequences of S tokens each in one run; N = B * S):
 * - `input_ids` int64 [B, S]
 * - `seqlens_k` int32 [B]: tokens of each sequence after this run, minus one
 * - `total_sequence_length` int32 []: the largest of those lengths, i.e. max(seqlens_k) + 1
 * - `image_embeds` float32 [M, hiddenSize], `image_positions` int64 [M, 1]: rows of the flat [N] tokens that are
 *   replaced by an image embedding (only where `acceptsImages`; M may be 0)
 * - `positions` int64 [3, N] (only where `takesPositions`): temporal, height and width of each token's position
 * - `logit_rows` int64 [R]: rows of the flat [N] tokens whose logits are wanted (R may be 0)
 * - `past.{layer}.key`, `past.{layer}.value` [B, numKvHeads, maxLen, headDim]
 *
 * Outputs: `logits` float32 [R, vocabSize]; `present.{layer}.key`, `present.{layer}.value`, to be bound to the very
 * memory of the past. B > 1 is for S = 1 only; S > 1 with B = 1 continues at any length (chunked prefill).
 */
export interface DecoderGraph {
  readonly path: string;
  readonly numLayers: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly kvElementType: KvElementType;
  readonly acceptsImages: boolean;
  /** Whether tokens have positions of three axes, which the graph does not work out by itself. */
  readonly takesPositions: boolean;
}

/** One of the vision encoder's inputs, without the dimension of the batch. */
export interface VisionEncoderInput {
  /** As the tensors of a `ProcessedItem` are named. */
  readonly name: string;
  readonly elementType: "float32" | "int64";
  /** Sizes, or names of those that differ from item to item. */
  readonly shape: readonly (number | string)[];
}

/**
 * Inputs: `inputs`, each with a dimension of the batch in front. Output: `image_features` float32
 * [batch, numTokens, hiddenSize], the rows that take the places of image tokens. Only encoders of equally large items
 * (all sizes of `inputs` known) take more than one a run.
 *
 * An item is one tile or several of the same size: a whole picture (LLaVA), a part of one (SmolVLM), a patch (Fuyu).
 */
export interface VisionEncoderGraph {
  readonly path: string;
  readonly inputs: readonly VisionEncoderInput[];
  /** Side of a tile, in pixels. */
  readonly imageSize: number;
  /** Embeddings of one tile. */
  readonly numImageTokens: number;
}

export interface BuiltModel {
  /** As `architectures[0]` of config.json names it. */
  readonly architecture: string;
  /** What the graphs' external data locations are relative to; for `SessionOptions` of every graph here. */
  readonly externalDataFolder: string;
  readonly decoder: DecoderGraph;
  readonly visionEncoder: VisionEncoderGraph | null;
  /** The checkpoint's own limit on tokens of one sequence. */
  readonly maxPositionEmbeddings: number;
  readonly imageTokenId: number | null;
  /** Identifies weights, options and graph; part of every cache key. */
  readonly contentHash: string;
}
