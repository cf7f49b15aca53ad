/** Configuration of LFM2: layers of short gated convolutions, and between them layers that attend to all tokens. */
import { z } from "zod";

import type { RecurrentShape } from "../built-model.ts";
import {
  count,
  headCount,
  headSize,
  layerCount,
  normEpsilon,
  parseConfigObject,
  positionCount,
  positiveNumber,
  refuseOtherThan,
  requireHeadSize,
  requireWholeGroups,
  unsupportedField,
  vocabularySize,
  width,
} from "../config-field.ts";
import type { HeadNormNames } from "../decoder-graph/head-norm.ts";
import { checkLayerTypes } from "../layer-types.ts";
import { longestSequence, parseRopeConfig, type RopeConfig } from "../llama/rope.ts";

export type LfmLayerType = "conv" | "full_attention" | "sliding_attention";

/** Of LFM2's decoder, and of LFM3's, which has more parts. */
export interface LfmDecoderConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layerTypes: readonly LfmLayerType[];
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Of layers that attend to all tokens. */
  readonly rope: RopeConfig;
  /** Of layers that attend to the last tokens; left out if there are none. */
  readonly sliding?: {
    readonly rope: RopeConfig;
    /** Tokens that a position sees, itself included; null for all before it. */
    readonly window: number | null;
  };
  readonly maxPositionEmbeddings: number;
  readonly rmsNormEpsilon: number;
  readonly tieWordEmbeddings: boolean;
  /** Tokens that a convolution sees, the current one included. */
  readonly kernelSize: number;
  /** Of the convolutions and of the projections before and after them. */
  readonly hasConvolutionBias: boolean;
  readonly hasAttentionBias: boolean;
  /** Whether the result of each head is multiplied by a gate. */
  readonly hasHeadGates: boolean;
  /** Whether what mixing and perceptron add has a norm of its own. */
  readonly normalisesOutputs: boolean;
  readonly names: {
    /** See `HeadSizes`. */
    readonly headNorms: HeadNormNames;
    readonly attentionOutput: string;
  };
}

const DEFAULT_THETA = 1_000_000;

/** transformers' defaults. */
const textFields = z.looseObject({
  vocab_size: vocabularySize.default(65_536),
  hidden_size: width.default(2560),
  intermediate_size: width.default(12_288),
  /** The older name of `intermediate_size`, which it replaces. */
  block_ff_dim: width.optional(),
  block_auto_adjust_ff_dim: z.boolean().default(true),
  block_ffn_dim_multiplier: positiveNumber.max(1024).nullable().default(1),
  block_multiple_of: count.max(524_288).default(256),
  num_hidden_layers: layerCount.default(32),
  num_attention_heads: headCount.default(32),
  num_key_value_heads: headCount.default(8),
  head_dim: headSize.nullish(),
  max_position_embeddings: positionCount.default(128_000),
  norm_eps: normEpsilon.default(1e-5),
  tie_word_embeddings: z.boolean().default(true),
  /** The older name of `tie_word_embeddings`, which it replaces. */
  tie_embedding: z.boolean().optional(),
  conv_bias: z.boolean().default(false),
  /** 3 in all models so far. */
  conv_L_cache: z.int().min(2).max(1024).default(3),
  layer_types: z.array(z.string()).nullish(),
  full_attn_idxs: z.array(z.int().nonnegative()).nullish(),
});

/** Fields that would change the computation, and the values with which they do not. */
const neutralValues = {
  model_type: ["lfm2"],
  hidden_act: ["silu", "swish"],
  block_use_swiglu: [true],
  use_pos_enc: [true],
  num_experts: [0],
  quantization_config: [],
} as const;

/**
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseLfm2Config(config: unknown, path: string): LfmDecoderConfig {
  const fields = parseConfigObject(textFields, config, path);
  refuseOtherThan(config, path, neutralValues);
  const { hidden_size: hiddenSize, num_attention_heads: numHeads, num_key_value_heads: numKvHeads } = fields;
  requireWholeGroups(path, numHeads, numKvHeads);
  if (fields.head_dim == null && hiddenSize % numHeads !== 0) {
    throw unsupportedField(path, "num_attention_heads", numHeads, `hidden_size ${hiddenSize} is not a multiple of it`);
  }
  const headDim = fields.head_dim ?? hiddenSize / numHeads;
  requireHeadSize(path, headDim);
  const { max_position_embeddings: maxPositionEmbeddings } = fields;
  const rope = parseRopeConfig(config, path, { defaultTheta: DEFAULT_THETA, maxPositionEmbeddings });
  return {
    vocabSize: fields.vocab_size,
    hiddenSize,
    intermediateSize: intermediateSize(fields, path),
    layerTypes: layerTypes(fields, path),
    numHeads,
    numKvHeads,
    headDim,
    rope,
    maxPositionEmbeddings: longestSequence(rope, maxPositionEmbeddings),
    rmsNormEpsilon: fields.norm_eps,
    tieWordEmbeddings: fields.tie_embedding ?? fields.tie_word_embeddings,
    kernelSize: fields.conv_L_cache,
    hasConvolutionBias: fields.conv_bias,
    hasAttentionBias: false,
    hasHeadGates: false,
    normalisesOutputs: false,
    names: { headNorms: { query: "q_layernorm", key: "k_layernorm" }, attentionOutput: "out_proj" },
  };
}

/** The state of all convolutions; null without any. */
export function convolutionStates({ layerTypes, hiddenSize, kernelSize }: LfmDecoderConfig): RecurrentShape | null {
  const numLayers = layerTypes.filter((type) => type === "conv").length;
  return numLayers === 0 ? null : { numLayers, numChannels: hiddenSize, kernelSize, matrices: null };
}

type TextFields = z.output<typeof textFields>;

/** Two thirds of the stated width, since a gated perceptron has three matrices instead of two, rounded up. */
function intermediateSize(fields: TextFields, path: string): number {
  const { block_ffn_dim_multiplier: multiplier, block_multiple_of: unit } = fields;
  const stated = fields.block_ff_dim ?? fields.intermediate_size;
  if (!fields.block_auto_adjust_ff_dim) return stated;
  const adjusted = Math.trunc((2 * stated) / 3);
  const size = multiplier === null ? adjusted : Math.ceil(Math.trunc(multiplier * adjusted) / unit) * unit;
  if (width.safeParse(size).success) return size;
  throw unsupportedField(path, "block_ffn_dim_multiplier", multiplier, `perceptrons would have a width of ${size}`);
}

function layerTypes(fields: TextFields, path: string): readonly LfmLayerType[] {
  const { num_hidden_layers: numLayers, layer_types: given, full_attn_idxs: attending } = fields;
  const isAttending = (layer: number): boolean => attending == null || attending.includes(layer);
  const types =
    given ?? Array.from({ length: numLayers }, (_, layer) => (isAttending(layer) ? "full_attention" : "conv"));
  const supported = ["conv", "full_attention"] as const;
  return checkLayerTypes(types, { path, numLayers, supported, required: ["full_attention"] });
}
