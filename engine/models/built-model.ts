/**
 * A checkpoint turned into ONNX files whose weights lie in mapped files, or an export of it: what `models` hands to `core`.
 * Plain data, so that it crosses to the engine thread.
 */

export type KvElementType = "float32" | "float16" | "bfloat16";

/**
 * How a decoder's keys and values lie in memory: `slots` of the full length, one for each sequence, or blocks of
 * `blockSize` tokens that sequences map and share.
 */
export type KvLayout = { readonly kind: "slots" } | { readonly kind: "paged"; readonly blockSize: number };

type FloatType = "float32" | "float16";

/** What is asked of every decoder, whatever its form. */
export interface DecoderShape {
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

/**
 * A graph of ours.
 *
 * With KV slots its inputs are (B sequences of S tokens each in one run; N = B * S):
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
 *
 * With a paged KV cache they are (B sequences, whose N tokens are packed one sequence after the other; a sequence may
 * have none, the run has at least one):
 * - `input_ids` int64 [N]
 * - `cumulative_lengths` int32 [B + 1]: of each sequence, its first token among the N; then N
 * - `past_lengths` int32 [B]: tokens of each sequence in the cache before this run
 * - `block_table` int32 [B, C]: token `p` of a sequence lies in block `block_table[b, p / blockSize]`, which may be
 *   shared with other sequences if the run does not write to it; -1 if no block is mapped. On the CPU a run that needs
 *   an unmapped block fails
 * - `attention_metadata` int32 [3], on CUDA only and in host memory: upper bounds of the longest query and of the longest
 *   KV, and the longest KV's lower bound
 * - `image_pool` float32 [P, hiddenSize] (P at least 1), `image_rows` int64 [N]: the row of the pool that takes the
 *   token's place, -1 for a token of text (only where `acceptsImages`)
 * - `positions` int64 [3, N] (only where `takesPositions`)
 * - `logit_rows` int64 [R] (R at least 1), `inverse_temperature` float32 [R, 1]
 * - `past.{layer}.key`, `past.{layer}.value` [numBlocks, blockSize, numKvHeads, headDim]
 *
 * and the outputs are the same, with three more for rows that are drawn without reading all their logits:
 * - `candidate_logits` float32 [R, numCandidates]: the largest logits of each row, largest first
 * - `candidate_ids` int32 [R, numCandidates]: their tokens, of equal logits the lower ids
 * - `mass` float32 [R]: sum over the row of exp((logit - largest logit) * inverse_temperature)
 */
export interface DecoderGraph extends DecoderShape {
  readonly form: "in-place";
  readonly kvLayout: KvLayout;
  /** Of the outputs of a paged graph; 0 for slots. */
  readonly numCandidates: number;
  readonly path: string;
  /** Of the decoder alone, with the whole embedding table. */
  readonly weightBytes: number;
}

/**
 * A ready-made export. Inputs (B sequences of S tokens each after P that they have computed before, or padding):
 * - `inputs_embeds` [B, S, hiddenSize] where there is `embedTokens`, else `input_ids` int64 [B, S]
 * - `attention_mask` int64 [B, P + S], 0 for padding, else 1
 * - `position_ids` int64 [B, S] or [3, B, S]
 * - `num_logits_to_keep` int64, `use_cache_branch` bool [1]
 * - `past_key_values.{layer}.key`, `past_key_values.{layer}.value` [B, numKvHeads, P, headDim]
 *
 * of which it has those that are told below. Outputs: `logits` [B, S or as many as are kept, vocabSize];
 * `present.{layer}.key`, `present.{layer}.value` [B, numKvHeads, P + S, headDim], which must not be the memory of the
 * past.
 */
export interface DecoderExport extends DecoderShape {
  readonly form: "export";
  readonly kvElementType: FloatType;
  readonly path: string;
  /** Null where the decoder takes token ids. */
  readonly embedTokens: { readonly path: string; readonly elementType: FloatType } | null;
  /** Of `inputs_embeds`. */
  readonly embedsElementType: FloatType;
  readonly logitsElementType: FloatType;
  readonly takesAttentionMask: boolean;
  /** Axes of `position_ids`; 0 where there is no such input. */
  readonly numPositionAxes: 0 | 1 | 3;
  /** Dimensions of `num_logits_to_keep`; null where there is no such input, and all logits are computed. */
  readonly numLogitsToKeepRank: 0 | 1 | null;
  /** Whether two graphs lie in one, for prompts and for single tokens after them, and `use_cache_branch` tells which. */
  readonly hasCacheBranch: boolean;
  /** Of the decoder alone. */
  readonly weightBytes: number;
  /** Where sequences of a run are padded; null where B must be 1 for none to change what the others compute. */
  readonly padding: "front" | "back" | null;
}

/** One of the vision encoder's inputs, without the dimension of the batch. */
export interface VisionEncoderInput {
  /** As the tensors of a `ProcessedItem` are named. */
  readonly name: string;
  readonly elementType: "float32" | "int64";
  /** Sizes, or names of those that differ from item to item. */
  readonly shape: readonly (number | string)[];
}

/** An item is one tile or several of the same size: a whole picture (LLaVA), a part of one (SmolVLM), a patch (Fuyu). */
export interface VisionEncoderShape {
  readonly inputs: readonly VisionEncoderInput[];
  /** Side of a tile, in pixels. */
  readonly imageSize: number;
  /** Embeddings of one tile. */
  readonly numImageTokens: number;
}

/**
 * A graph of ours. Inputs: `inputs`, each with a dimension of the batch in front. Output: `image_features` float32
 * [batch, numTokens, hiddenSize], the rows that take the places of image tokens. Only encoders of equally large items
 * (all sizes of `inputs` known) take more than one a run.
 */
export interface VisionEncoderGraph extends VisionEncoderShape {
  readonly form: "in-place";
  readonly path: string;
}

/** One of the inputs of an exported vision encoder, for one image a run. */
export interface ExportedVisionInput {
  readonly name: string;
  readonly elementType: "float32" | "float16" | "int64" | "bool";
  /** The item's tensor that is given; null for a mask that leaves no pixel of `pixel_values` out. */
  readonly source: string | null;
  /** Whether a dimension of 1 stands in front of the tensor's. */
  readonly hasBatch: boolean;
}

/** A ready-made export. Output: `image_features`, [..., hiddenSize], the rows of one image. */
export interface VisionEncoderExport extends VisionEncoderShape {
  readonly form: "export";
  readonly path: string;
  readonly exportedInputs: readonly ExportedVisionInput[];
}

export interface BuiltModel {
  /** As `architectures[0]` of config.json names it. */
  readonly architecture: string;
  /**
   * What the graphs' external data locations are relative to; for `SessionOptions` of every graph here. Undefined for
   * exports, whose weights lie beside them.
   */
  readonly externalDataFolder: string | undefined;
  readonly decoder: DecoderGraph | DecoderExport;
  readonly visionEncoder: VisionEncoderGraph | VisionEncoderExport | null;
  /** The checkpoint's own limit on tokens of one sequence. */
  readonly maxPositionEmbeddings: number;
  readonly imageTokenId: number | null;
  /** Identifies weights, options and graph; part of every cache key. */
  readonly contentHash: string;
}
