/**
 * Configurations of the Llama family (Llama, Mistral, Ministral 3, Phi-3, Qwen2, Qwen3, Qwen3-MoE, Granite-Docling), reduced to the
 * differences in their shared decoder graph.
 */
import { z } from "zod";

import {
  byModelType,
  headCount,
  headSize,
  layerCount,
  normEpsilon,
  parseConfigObject,
  positionCount,
  refuseOtherThan,
  requireHeadSize,
  requireWholeGroups,
  unsupportedField,
  vocabularySize,
  width,
} from "../config-field.ts";
import { parseQwenExperts, type DecoderExperts } from "./experts.ts";
import { parseMultipliers, type DecoderMultipliers, type MultiplierDefaults } from "./multipliers.ts";
import { takePhi3Rope } from "./phi3-rope.ts";
import { parseQueryScaling, withDefaultRope, type QueryScaling } from "./query-scaling.ts";
import { longestSequence, parseRopeConfig, type RopeConfig } from "./rope.ts";
import { rotatedDimensions } from "./rotary-share.ts";

export interface DecoderConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Dimensions of a head that are rotated, from its start. Default: all. */
  readonly rotaryDim?: number;
  readonly maxPositionEmbeddings: number;
  readonly rmsNormEpsilon: number;
  readonly tieWordEmbeddings: boolean;
  readonly rope: RopeConfig;
  readonly hasQkvBias: boolean;
  readonly hasOutputBias: boolean;
  readonly hasMlpBias: boolean;
  /** Whether query and key of every head have an RMS norm, before they are rotated. */
  readonly normalisesQueryAndKey: boolean;
  /** Number of tokens that a position sees in each layer, itself included; null means all before it. */
  readonly slidingWindows: readonly (number | null)[];
  /**
   * Whether query, key and value are one matrix of the checkpoint (`qkv_proj`), and gate and up projection another
   * (`gate_up_proj`). Default false.
   */
  readonly fusesProjections?: boolean;
  /** Growth of queries with their position; null or left out: they do not grow. */
  readonly queryScaling?: QueryScaling | null;
  /** Layers with experts; null or left out: none. */
  readonly experts?: DecoderExperts | null;
  /** Null or left out: none, and products of queries and keys have the factor `1 / sqrt(headDim)`. */
  readonly multipliers?: DecoderMultipliers | null;
}

export type DecoderFamily =
  | "llama"
  | "mistral"
  | "ministral3"
  | "phi3"
  | "qwen2"
  | "qwen3"
  | "qwen3_moe"
  | "granite_docling_text"
  | "granite4_vision_text";

interface FamilyDefaults {
  readonly vocab_size: number;
  readonly intermediate_size: number;
  /** Null: as many as query heads. */
  readonly num_key_value_heads: number | null;
  /** Null: the width divided by the number of query heads. */
  readonly head_dim: number | null;
  readonly max_position_embeddings: number;
  readonly sliding_window: number | null;
  readonly hidden_size?: number;
  readonly num_hidden_layers?: number;
  readonly num_attention_heads?: number;
  readonly rms_norm_eps?: number;
  readonly tie_word_embeddings?: boolean;
  readonly multipliers?: MultiplierDefaults;
}

/** transformers' defaults for fields missing in config.json. LLaVA's text_config leaves out most of them. */
const familyDefaults: Readonly<Record<DecoderFamily, FamilyDefaults>> = {
  llama: {
    vocab_size: 32000,
    intermediate_size: 11008,
    num_key_value_heads: null,
    head_dim: null,
    max_position_embeddings: 2048,
    sliding_window: null,
  },
  mistral: {
    vocab_size: 32000,
    intermediate_size: 14336,
    num_key_value_heads: 8,
    head_dim: null,
    max_position_embeddings: 131072,
    sliding_window: 4096,
  },
  ministral3: {
    vocab_size: 131072,
    intermediate_size: 14336,
    num_key_value_heads: 8,
    head_dim: 128,
    max_position_embeddings: 262144,
    sliding_window: null,
    num_hidden_layers: 34,
    rms_norm_eps: 1e-5,
  },
  phi3: {
    vocab_size: 32064,
    intermediate_size: 8192,
    num_key_value_heads: null,
    head_dim: null,
    max_position_embeddings: 4096,
    sliding_window: null,
    hidden_size: 3072,
    rms_norm_eps: 1e-5,
  },
  qwen2: {
    vocab_size: 151936,
    intermediate_size: 22016,
    num_key_value_heads: 32,
    head_dim: null,
    max_position_embeddings: 32768,
    sliding_window: 4096,
  },
  qwen3: {
    vocab_size: 151936,
    intermediate_size: 22016,
    num_key_value_heads: 32,
    head_dim: 128,
    max_position_embeddings: 32768,
    sliding_window: 4096,
  },
  qwen3_moe: {
    vocab_size: 151936,
    intermediate_size: 6144,
    num_key_value_heads: 4,
    head_dim: null,
    max_position_embeddings: 32768,
    sliding_window: null,
    hidden_size: 2048,
    num_hidden_layers: 24,
  },
  granite_docling_text: {
    vocab_size: 133800,
    intermediate_size: 2048,
    num_key_value_heads: 4,
    head_dim: null,
    max_position_embeddings: 32768,
    sliding_window: null,
    hidden_size: 1024,
    num_hidden_layers: 28,
    num_attention_heads: 16,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: true,
    multipliers: {
      embedding_multiplier: 12,
      attention_multiplier: 0.015625,
      residual_multiplier: 0.263,
      logits_scaling: 4,
    },
  },
  granite4_vision_text: {
    vocab_size: 32000,
    intermediate_size: 11008,
    num_key_value_heads: null,
    head_dim: null,
    max_position_embeddings: 2048,
    sliding_window: null,
    multipliers: {
      embedding_multiplier: 1,
      attention_multiplier: 1,
      residual_multiplier: 1,
      logits_scaling: 1,
    },
  },
};

const qwen3MoeExperts = { numActive: 8, intermediateSize: 768 };

const DEFAULT_ROPE_THETA = 10000;

const decoderFields = z.looseObject({
  vocab_size: vocabularySize.optional(),
  hidden_size: width.optional(),
  intermediate_size: width.optional(),
  num_hidden_layers: layerCount.optional(),
  num_attention_heads: headCount.optional(),
  num_key_value_heads: headCount.nullish(),
  head_dim: headSize.nullish(),
  max_position_embeddings: positionCount.optional(),
  rms_norm_eps: normEpsilon.optional(),
  tie_word_embeddings: z.boolean().optional(),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  sliding_window: positionCount.nullish(),
  use_sliding_window: z.boolean().default(false),
  max_window_layers: z.int().nonnegative().default(28),
  layer_types: z.array(z.string()).nullish(),
});

/** Fields of related models that would change the computation, and the values with which they do not. */
const neutralValues = {
  hidden_act: ["silu", "swish"],
  partial_rotary_factor: [1],
  rope_interleaved: [false],
  use_qk_norm: [false],
  qk_norm: [false],
  attn_logit_softcapping: [],
  final_logit_softcapping: [],
  query_pre_attn_scalar: [],
  logit_scale: [1],
  no_rope_layers: [],
  quantization_config: [],
} as const;

/** The same for families without multipliers. */
const noMultipliers = {
  attention_multiplier: [],
  embedding_multiplier: [1],
  residual_multiplier: [1],
  logits_scaling: [1],
} as const;

/** The same for families without experts. */
const noExperts = { num_local_experts: [], num_experts: [0] } as const;

const families: Readonly<Record<string, DecoderFamily>> = {
  llama: "llama",
  mistral: "mistral",
  ministral3: "ministral3",
  phi3: "phi3",
  qwen2: "qwen2",
  qwen3: "qwen3",
  qwen3_moe: "qwen3_moe",
  granite_docling_text: "granite_docling_text",
  granite4_vision_text: "granite4_vision_text",
};

const textFields = z.looseObject({ model_type: z.string().default("llama") });

/**
 * The decoder inside another model: `text_config`, whose `model_type` names the family. Throws like
 * `parseDecoderConfig`.
 */
export function parseTextConfig(config: unknown): DecoderConfig {
  const { model_type: modelType } = parseConfigObject(textFields, config, "text_config");
  return parseDecoderConfig(config, "text_config", byModelType(families, "text_config", modelType));
}

/**
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` for fields of a wrong type, `unsupported_model` for values that would change
 * the computation.
 */
export function parseDecoderConfig(json: unknown, path: string, family: DecoderFamily): DecoderConfig {
  const { share, rest: config } = family === "phi3" ? takePhi3Rope(json, path) : { share: 1, rest: json };
  const fields = parseConfigObject(decoderFields, config, path);
  refuseOtherThan(config, path, neutralValues);
  if (family !== "qwen3_moe") refuseOtherThan(config, path, noExperts);
  const defaults = familyDefaults[family];
  const { multipliers } = defaults;
  if (multipliers === undefined) refuseOtherThan(config, path, noMultipliers);
  const hiddenSize = fields.hidden_size ?? defaults.hidden_size ?? 4096;
  const numLayers = fields.num_hidden_layers ?? defaults.num_hidden_layers ?? 32;
  const numHeads = fields.num_attention_heads ?? defaults.num_attention_heads ?? 32;
  const numKvHeads =
    (fields.num_key_value_heads === undefined ? defaults.num_key_value_heads : fields.num_key_value_heads) ?? numHeads;
  requireWholeGroups(path, numHeads, numKvHeads);
  const ownHeadDim = fields.head_dim === undefined ? defaults.head_dim : fields.head_dim;
  if (ownHeadDim === null && hiddenSize % numHeads !== 0) {
    throw unsupportedField(path, "num_attention_heads", numHeads, `hidden_size ${hiddenSize} is not a multiple of it`);
  }
  const headDim = ownHeadDim ?? hiddenSize / numHeads;
  requireHeadSize(path, headDim);
  // Qwen2 always has biases on query, key and value, whatever its field says. Mistral, Ministral 3 and Phi-3 never have
  // them. Llama and Qwen3 have them if their field says so, also on the output.
  const isLlama = family === "llama" || family === "granite_docling_text";
  const isQwen3 = family === "qwen3" || family === "qwen3_moe";
  const hasAttentionBias = (isLlama || isQwen3) && fields.attention_bias;
  if (!isLlama && !isQwen3 && family !== "qwen2") {
    refuseOtherThan(config, path, { attention_bias: [false] });
  }
  if (!isLlama) refuseOtherThan(config, path, { mlp_bias: [false] });
  const maxPositionEmbeddings = fields.max_position_embeddings ?? defaults.max_position_embeddings;
  const holder = family === "ministral3" ? withDefaultRope(config, path) : config;
  const rotaryDim = rotatedDimensions(path, headDim, share);
  const longRopeDim = family === "phi3" ? { longRopeDim: rotaryDim } : {};
  const ropeDefaults = { defaultTheta: DEFAULT_ROPE_THETA, maxPositionEmbeddings, ...longRopeDim };
  const rope = parseRopeConfig(holder, path, ropeDefaults);
  return {
    vocabSize: fields.vocab_size ?? defaults.vocab_size,
    hiddenSize,
    intermediateSize: fields.intermediate_size ?? defaults.intermediate_size,
    numLayers,
    numHeads,
    numKvHeads,
    headDim,
    ...(rotaryDim !== headDim && { rotaryDim }),
    maxPositionEmbeddings: longestSequence(rope, maxPositionEmbeddings),
    rmsNormEpsilon: fields.rms_norm_eps ?? defaults.rms_norm_eps ?? 1e-6,
    tieWordEmbeddings: fields.tie_word_embeddings ?? defaults.tie_word_embeddings ?? false,
    rope,
    hasQkvBias: family === "qwen2" || hasAttentionBias,
    hasOutputBias: hasAttentionBias,
    hasMlpBias: isLlama && fields.mlp_bias,
    normalisesQueryAndKey: isQwen3,
    slidingWindows: slidingWindows(fields, path, family, numLayers),
    fusesProjections: family === "phi3",
    queryScaling: family === "ministral3" ? parseQueryScaling(holder, path) : null,
    experts: family === "qwen3_moe" ? parseQwenExperts(config, path, { ...qwen3MoeExperts, numLayers }) : null,
    multipliers: multipliers === undefined ? null : parseMultipliers(config, path, multipliers),
  };
}

function slidingWindows(
  fields: z.output<typeof decoderFields>,
  path: string,
  family: DecoderFamily,
  numLayers: number,
): (number | null)[] {
  const { layer_types: layerTypes } = fields;
  const window = fields.sliding_window === undefined ? familyDefaults[family].sliding_window : fields.sliding_window;
  switch (family) {
    case "llama":
    case "granite_docling_text":
    case "granite4_vision_text":
      if (window !== null) throw unsupportedField(path, "sliding_window", window, "its layers have no window");
      return Array.from({ length: numLayers }, () => null);
    case "mistral":
    case "ministral3":
    case "phi3":
      return Array.from({ length: numLayers }, () => window);
    case "qwen3_moe":
      if (fields.use_sliding_window) throw unsupportedField(path, "use_sliding_window", true);
      return Array.from({ length: numLayers }, () => null);
    case "qwen2":
    case "qwen3": {
      const used = fields.use_sliding_window ? window : null;
      if (layerTypes == null) {
        return Array.from({ length: numLayers }, (_, layer) => (layer >= fields.max_window_layers ? used : null));
      }
      if (layerTypes.length !== numLayers) {
        throw unsupportedField(path, "layer_types", layerTypes, `there are ${numLayers} layers`);
      }
      return layerTypes.map((layerType) => {
        if (layerType === "full_attention") return null;
        if (layerType === "sliding_attention" && used !== null) return used;
        throw unsupportedField(path, "layer_types", layerType);
      });
    }
  }
  return family satisfies never;
}
