/**
 * A checkpoint as ONNX files with mapped weights, or a ready-made export: the output of `models` for `core`. Plain
 * data, so that it can be sent to the engine thread.
 */

import type { DeviceName } from "../contract/config.ts";
import type { ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ExternalTensor } from "../weights/stored-tensor.ts";

export type KvElementType = "float32" | "float16" | "bfloat16" | "int8" | "float8e4m3";

/**
 * How a decoder's keys and values lie in memory: `slots` of the full length, one for each sequence, or blocks of
 * `blockSize` tokens that sequences map and share.
 */
export type KvLayout = { readonly kind: "slots" } | { readonly kind: "paged"; readonly blockSize: number };

type FloatType = "float32" | "float16";

/**
 * Layers whose memory of a sequence is a state of constant size: the last inputs of a causal convolution, and in gated
 * delta networks a matrix for each head.
 */
export interface RecurrentShape {
  readonly numLayers: number;
  /** Channels of the convolution. */
  readonly numChannels: number;
  /** Tokens that the convolution sees, the current one included. */
  readonly kernelSize: number;
  /** Null for layers that are convolutions alone. */
  readonly matrices: {
    readonly numHeads: number;
    /** Rows and columns of a head's matrix. */
    readonly keyDim: number;
    readonly valueDim: number;
  } | null;
  /** Element type of the convolution's inputs. Default float32. */
  readonly inputType?: "float32" | "float16" | "bfloat16";
  /** Whether the last two dimensions of each state are exchanged, as kernels for packed runs read them. Default false. */
  readonly isTransposed?: boolean;
}

/** Heads of a layer's keys and values. */
export interface KvHeads {
  readonly numKvHeads: number;
  readonly headDim: number;
}

export interface AdapterShape {
  /** The columns of each adapter in `AdapterMatrices`. */
  readonly ranks: readonly number[];
  /** Whether a run names the columns that it computes. */
  readonly takesColumns: boolean;
}

/** Properties of every decoder, in either form. */
export interface DecoderShape {
  /** Layers with keys and values. */
  readonly numLayers: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly hiddenSize: number;
  /** Features of an image embedding: `hiddenSize`, and as many for each of the first layers that DeepStack adds to. */
  readonly imageWidth: number;
  readonly vocabSize: number;
  /** Columns of `logits`, if they are not those of the vocabulary; see `DecoderOutput`. Default: `vocabSize`. */
  readonly outputWidth?: number;
  /** Whether runs return rows of all tokens, for embeddings of tokens. Default false: of few tokens at a time. */
  readonly returnsAllRows?: boolean;
  readonly kvElementType: KvElementType;
  readonly acceptsImages: boolean;
  /** Whether tokens have three-axis positions, which the graph does not compute itself. */
  readonly takesPositions: boolean;
  /** Whether a run must have all tokens of an image that it begins, because they see each other. Default false. */
  readonly keepsImagesWhole?: boolean;
  /**
   * Whether a run must have all images of a prompt, and the text between them, because their tokens see each other.
   * `keepsImagesWhole` holds then, too. Default false.
   */
  readonly joinsImages?: boolean;
  /**
   * Whether chunks of prompts are computed with other weights than the newest tokens of a few sequences. The output of a
   * sequence that was preempted is then computed again token by token, so that it has the weights of newest tokens
   * again. Default false.
   */
  readonly widensPrompts?: boolean;
  /** Adapters of which each request may choose one. Left out: there are none, and the graph has no inputs for them. */
  readonly adapters?: AdapterShape;
  /** Left out if every layer has keys and values. */
  readonly recurrent?: RecurrentShape;
  /** One for each of the `numLayers`, if they differ; `headDim` is then the largest. Left out if all are the same. */
  readonly kvHeads?: readonly KvHeads[];
  /**
   * For each layer that attends to the keys and values of another one and has none of its own: the index of that layer
   * among the `numLayers`. Left out if there are none.
   */
  readonly kvReaders?: readonly number[];
}

/**
 * A graph built by Fovea.
 *
 * With KV slots its inputs are (B sequences of S tokens each in one run; N = B * S):
 * - `input_ids` int64 [B, S]
 * - `seqlens_k` int32 [B]: tokens of each sequence after this run, minus one
 * - `total_sequence_length` int32 []: the largest of those lengths, i.e. max(seqlens_k) + 1
 * - `image_embeds` float32 [M, imageWidth], `image_positions` int64 [M, 1]: rows of the flat [N] tokens that are
 *   replaced by an image embedding (only where `acceptsImages`; M may be 0)
 * - `positions` int64 [3, N] (only where `takesPositions`): temporal, height and width of each token's position
 * - `logit_rows` int64 [R]: rows of the flat [N] tokens whose logits are computed (R may be 0)
 * - only with `adapters`: `adapter_ids` int64 [N], the adapter of each token's request, from 1 on, or 0; and where it
 *   `takesColumns`, `adapter_columns` int64 [A], the columns of all adapters that occur (A may be 0), of which a layer has
 *   as many as all ranks together
 * - `past.{layer}.key`, `past.{layer}.value` [B, numKvHeads, maxLen, headDim]
 * - only with recurrent layers: `updates_state` bool [B], false for a slot whose state stays as it is; and for each of
 *   these layers `past.{layer}.convolution` [B, kernelSize - 1, numChannels] and, where there are `matrices`,
 *   `past.{layer}.state` float32 [B, numHeads, keyDim, valueDim], zeros before a sequence's first token
 *
 * Outputs: `logits` float32 [R, outputWidth]; `present.{layer}.key`, `present.{layer}.value` and so on, which must be bound
 * to the memory of the past. B > 1 requires S = 1; S > 1 with B = 1 continues at any length (chunked prefill).
 *
 * Layers that read another layer's keys and values (`kvReaders`) write the same numbers into the same memory again: their
 * outputs `present.{layer}.key.{reader}` and `present.{layer}.value.{reader}`, where `layer` is the layer that they read
 * and `reader` their index among the readers, must be bound to that layer's memory too.
 *
 * With a paged KV cache its inputs are (B sequences, whose N tokens are packed one sequence after the other; a sequence
 * may have none, the run has at least one):
 * - `input_ids` int64 [N]
 * - `cumulative_lengths` int32 [B + 1]: the index of each sequence's first token among the N; then N
 * - `past_lengths` int32 [B]: tokens of each sequence in the cache before this run
 * - `block_table` int32 [B, C]: token `p` of a sequence lies in block `block_table[b, p / blockSize]`, which may be
 *   shared with other sequences if the run does not write to it; -1 if no block is mapped. On the CPU a run that needs
 *   an unmapped block fails
 * - `attention_metadata` int32 [3], on CUDA only and in host memory: upper bounds of the longest query and of the longest
 *   KV, and the longest KV's lower bound
 * - `image_pool` float32 [P, imageWidth] (P at least 1), `image_rows` int64 [N]: the row of the pool that takes the
 *   token's place, -1 for a token of text (only where `acceptsImages`)
 * - `positions` int64 [3, N] (only where `takesPositions`)
 * - `adapter_ids` int64 [N] (only with `adapters`)
 * - `logit_rows` int64 [R] (R at least 1), `inverse_temperature` float32 [R, 1]
 * - `past.{layer}.key`, `past.{layer}.value` [numBlocks, blockSize, numKvHeads, headDim]
 * - only with recurrent layers: `state_rows` and `new_state_rows` int64 [B], the rows of each sequence's states before
 *   and after the run, of which a row that is written may be named several times, but not read; and for each of these
 *   layers `past.{layer}.convolution`, `past.{layer}.state` like those of slots, with any number of rows instead of
 *   slots. On CUDA, the inputs of the convolution have the activations' type, and the last two dimensions of both are
 *   exchanged
 *
 * Its outputs are the same, with three more for rows that are drawn without reading all their logits:
 * - `candidate_logits` float32 [R, numCandidates]: the largest logits of each row, largest first
 * - `candidate_ids` int32 [R, numCandidates]: their tokens; those of equal logits in any order
 * - `mass` float32 [R]: sum over the row of exp((logit - largest logit) * inverse_temperature)
 */
export interface DecoderGraph extends DecoderShape {
  readonly form: "in-place";
  readonly kvLayout: KvLayout;
  /** Candidates per row in the outputs of a paged graph; 0 for slots. */
  readonly numCandidates: number;
  /** Whether a paged graph stores keys and values as 8-bit floats. Default false. */
  readonly storesFp8?: boolean;
  readonly path: string;
  /** Bytes of the decoder's weights, with the whole embedding table. */
  readonly weightBytes: number;
  /** All of them, in their files. */
  readonly weights: readonly ExternalTensor[];
}

/**
 * A ready-made export. Possible inputs (B sequences of S tokens each after P computed or padding tokens):
 * - `inputs_embeds` [B, S, hiddenSize] if there is `embedTokens`, otherwise `input_ids` int64 [B, S]
 * - `attention_mask` int64 [B, P + S], 0 for padding, else 1
 * - `position_ids` int64 [B, S] or [3, B, S]
 * - `token_type_ids` int64 [B, S], 1 for an embedding of an image, else 0
 * - `num_logits_to_keep` int64, `use_cache_branch` bool [1]
 * - `past_key_values.{layer}.key`, `past_key_values.{layer}.value` [B, numKvHeads, P, headDim]
 * - for recurrent layers, `past_conv.{layer}` and, where there are `matrices`, `past_recurrent.{layer}` as in `states`,
 *   zeros before a sequence's first token
 *
 * The fields below say which of them it has. Outputs: `logits` [B, S or the number kept, vocabSize];
 * `present.{layer}.key`, `present.{layer}.value` [B, numKvHeads, P + S, headDim] and the new states, which must not be
 * the memory of the past.
 */
export interface DecoderExport extends DecoderShape {
  readonly form: "export";
  readonly kvElementType: FloatType;
  readonly path: string;
  /** Null if the decoder takes token ids. */
  readonly embedTokens: { readonly path: string; readonly elementType: FloatType } | null;
  /** Element type of `inputs_embeds`. */
  readonly embedsElementType: FloatType;
  readonly logitsElementType: FloatType;
  /** Number of each layer with keys and values in the names of inputs and outputs. */
  readonly kvLayers: readonly number[];
  /** Empty without recurrent layers. */
  readonly states: readonly ExportedState[];
  readonly takesAttentionMask: boolean;
  /** Whether it has `token_type_ids`: images see all of themselves, and `keepsImagesWhole` holds. */
  readonly takesTokenTypes: boolean;
  /** Axes of `position_ids`; 0 without such an input. */
  readonly numPositionAxes: 0 | 1 | 3;
  /** Dimensions of `num_logits_to_keep`; null without such an input: all logits are computed. */
  readonly numLogitsToKeepRank: 0 | 1 | null;
  /**
   * Whether the file contains two graphs, for prompts and for single tokens after them, selected by `use_cache_branch`.
   */
  readonly hasCacheBranch: boolean;
  /** Bytes of the decoder's weights. */
  readonly weightBytes: number;
  /** Where sequences of a run are padded; null if padding would change other sequences, so that B must be 1. */
  readonly padding: "front" | "back" | null;
}

/** A state of a recurrent layer of an export. */
export interface ExportedState {
  readonly input: string;
  readonly output: string;
  readonly elementType: FloatType;
  /** Without the batch dimension. */
  readonly shape: readonly number[];
}

/** How patches lie in a picture: squares row by row, and row by row the patches of each. */
export interface PatchOrder {
  /** Side of a patch, in pixels. */
  readonly patchSize: number;
  /** Side of a square, in patches. */
  readonly mergeSize: number;
}

/** One input of the vision encoder, without the batch dimension. */
export interface VisionEncoderInput {
  /** Named like the tensors of a `ProcessedItem`. */
  readonly name: string;
  readonly elementType: "float32" | "int64";
  /** Sizes, or names of sizes that differ between items. */
  readonly shape: readonly (number | string)[];
}

/**
 * An item is one or several tiles of the same size: a whole picture (LLaVA), a part of one (SmolVLM), a patch (Fuyu).
 */
export interface VisionEncoderShape {
  readonly inputs: readonly VisionEncoderInput[];
  /** Side of a tile, in pixels. */
  readonly imageSize: number;
  /** Number of embeddings of one tile. */
  readonly numImageTokens: number;
  /** Options of the image processor that are in config.json. */
  readonly imageOptions?: ProcessorOptions;
}

/**
 * A graph built by Fovea. Inputs: `inputs`, each with a batch dimension in front. Output: `image_features` float32
 * [batch, numTokens, imageWidth], the rows that replace image tokens. Only encoders of equally large items (all sizes
 * of `inputs` known) take more than one item per run.
 */
export interface VisionEncoderGraph extends VisionEncoderShape {
  readonly form: "in-place";
  /** Device that runs the graph. Default: the decoder's. */
  readonly device?: DeviceName;
  readonly path: string;
  readonly weightBytes: number;
  /** All of them, in their files. */
  readonly weights: readonly ExternalTensor[];
}

/** An input of an exported vision encoder, for one image per run. */
export interface ExportedVisionInput {
  readonly name: string;
  readonly elementType: "float32" | "float16" | "int64" | "bool";
  /** The item's tensor for this input; null for a mask that excludes no pixel of `pixel_values`. */
  readonly source: string | null;
  /** Whether the input has an additional leading dimension of 1. */
  readonly hasBatch: boolean;
  /** The order of the patches that become a picture, [1, 3, height, width]; null for an input like `source`. */
  readonly patchOrder: PatchOrder | null;
}

/** A ready-made export. Output: `image_features`, [..., hiddenSize], the rows of one image. */
export interface VisionEncoderExport extends VisionEncoderShape {
  readonly form: "export";
  readonly path: string;
  readonly weightBytes: number;
  readonly exportedInputs: readonly ExportedVisionInput[];
}

export interface BuiltModel {
  /** As in `architectures[0]` of config.json. */
  readonly architecture: string;
  /**
   * The base folder of the graphs' external data; for `SessionOptions` of every graph here. Undefined for exports,
   * whose weights are next to them.
   */
  readonly externalDataFolder: string | undefined;
  readonly decoder: DecoderGraph | DecoderExport;
  readonly visionEncoder: VisionEncoderGraph | VisionEncoderExport | null;
  /** The checkpoint's own limit on tokens per sequence. */
  readonly maxPositionEmbeddings: number;
  readonly imageTokenId: number | null;
  /** Identifies weights, options and graph; part of every cache key. */
  readonly contentHash: string;
}
