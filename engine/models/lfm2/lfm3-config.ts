/** Configuration of LFM3: LFM2's decoder with windows, gates of heads, and norms of what layers add. */
import { z } from "zod";

import {
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
import { checkLayerTypes } from "../layer-types.ts";
import { longestSequence, parseRopeConfig, type RopeConfig } from "../llama/rope.ts";
import type { LfmDecoderConfig, LfmLayerType } from "./config.ts";

const DEFAULT_THETA = 1_000_000;

const ropeOfLayers = z.looseObject({});

/** transformers' defaults. */
const textFields = z.looseObject({
  vocab_size: vocabularySize.default(128_000),
  hidden_size: width.default(2048),
  intermediate_size: width.default(7680),
  num_hidden_layers: layerCount.default(24),
  num_attention_heads: headCount.default(16),
  num_key_value_heads: headCount.default(4),
  head_dim: headSize.default(128),
  max_position_embeddings: positionCount.default(128_000),
  norm_eps: normEpsilon.optional(),
  /** Another name of `norm_eps`. */
  rms_norm_eps: normEpsilon.default(1e-5),
  tie_word_embeddings: z.boolean().default(true),
  conv_bias: z.boolean().default(false),
  /** 7 in all models so far. */
  conv_L_cache: z.int().min(2).max(1024).default(7),
  layer_types: z.array(z.string()).nullish(),
  sliding_window: positionCount.nullable().default(256),
  use_sandwich_norm: z.boolean().default(true),
  use_attention_gate: z.boolean().default(true),
  attention_bias: z.boolean().default(false),
  /** By kind of layer. */
  rope_parameters: z.looseObject({ full_attention: ropeOfLayers, sliding_attention: ropeOfLayers.optional() }).default({
    full_attention: { rope_type: "proportional", rope_theta: DEFAULT_THETA, partial_rotary_factor: 0.5 },
    sliding_attention: { rope_type: "default", rope_theta: 10_000 },
  }),
});

/** Fields that would change the computation, and the values with which they do not. */
const neutralValues = {
  model_type: ["lfm3"],
  hidden_act: ["silu", "swish"],
  num_experts: [0],
  rope_scaling: [],
  quantization_config: [],
} as const;

/**
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseLfm3Config(config: unknown, path: string): LfmDecoderConfig {
  const fields = parseConfigObject(textFields, config, path);
  refuseOtherThan(config, path, neutralValues);
  const { num_attention_heads: numHeads, num_key_value_heads: numKvHeads, head_dim: headDim } = fields;
  requireWholeGroups(path, numHeads, numKvHeads);
  requireHeadSize(path, headDim);
  const { max_position_embeddings: maxPositionEmbeddings, rope_parameters: ropes } = fields;
  const ropeOf = (parameters: object): RopeConfig =>
    parseRopeConfig({ rope_parameters: parameters }, path, { defaultTheta: DEFAULT_THETA, maxPositionEmbeddings });
  const rope = ropeOf(ropes.full_attention);
  const types = layerTypes(fields, path);
  if (types.includes("sliding_attention") && ropes.sliding_attention === undefined) {
    throw unsupportedField(path, "rope_parameters", ropes, "it lacks sliding_attention");
  }
  const sliding = { rope: ropeOf(ropes.sliding_attention ?? {}), window: fields.sliding_window };
  return {
    vocabSize: fields.vocab_size,
    hiddenSize: fields.hidden_size,
    intermediateSize: fields.intermediate_size,
    layerTypes: types,
    numHeads,
    numKvHeads,
    headDim,
    rope,
    ...(types.includes("sliding_attention") && { sliding }),
    maxPositionEmbeddings: longestSequence(rope, maxPositionEmbeddings),
    rmsNormEpsilon: fields.norm_eps ?? fields.rms_norm_eps,
    tieWordEmbeddings: fields.tie_word_embeddings,
    kernelSize: fields.conv_L_cache,
    hasConvolutionBias: fields.conv_bias,
    hasAttentionBias: fields.attention_bias,
    hasHeadGates: fields.use_attention_gate,
    normalisesOutputs: fields.use_sandwich_norm,
    names: { headNorms: { query: "q_norm", key: "k_norm" }, attentionOutput: "o_proj" },
  };
}

/** If config.json does not list them: every fourth layer attends to all tokens, and most of the others are convolutions. */
function layerTypes(
  { num_hidden_layers: numLayers, layer_types: given }: z.output<typeof textFields>,
  path: string,
): readonly LfmLayerType[] {
  const usualType = (layer: number): LfmLayerType => {
    if (layer % 4 === 2) return "full_attention";
    return layer % 4 === 0 && layer > 0 ? "sliding_attention" : "conv";
  };
  const types = given ?? Array.from({ length: numLayers }, (_, layer) => usualType(layer));
  const supported = ["conv", "sliding_attention", "full_attention"] as const;
  return checkLayerTypes(types, { path, numLayers, supported, required: ["full_attention"] });
}
