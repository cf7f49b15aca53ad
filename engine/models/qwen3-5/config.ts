/** Configuration of Qwen3.5, with and without mixture of experts: its decoder alone, or with Qwen3-VL's tower. */
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
import type { ExpertsShape } from "../decoder-graph/experts.ts";
import { checkLayerTypes } from "../layer-types.ts";
import { parseExpertsShape } from "../llama/experts.ts";
import { longestSequence, parseRopeConfig, type RopeConfig } from "../llama/rope.ts";
import { rotarySectionsField, type RotarySections } from "../qwen2-vl/config.ts";
import { parseQwen3VlVision, type Qwen3VlVisionConfig } from "../qwen3-vl/config.ts";

export type LayerType = "linear_attention" | "full_attention";

export interface Qwen35TextConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layerTypes: readonly LayerType[];
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Dimensions of a head that are rotated, from its start. */
  readonly rotaryDim: number;
  /** How many of the rotated frequencies each axis of a position has. */
  readonly rotarySections: RotarySections;
  readonly rope: RopeConfig;
  readonly maxPositionEmbeddings: number;
  readonly rmsNormEpsilon: number;
  readonly tieWordEmbeddings: boolean;
  readonly hasAttentionBias: boolean;
  readonly linear: LinearAttentionConfig;
  /** Experts of all layers; null: a layer has one perceptron of `intermediateSize`. */
  readonly experts: Qwen35Experts | null;
}

export interface Qwen35Experts extends ExpertsShape {
  /** Of the expert that computes every token. */
  readonly sharedIntermediateSize: number;
}

export interface LinearAttentionConfig {
  readonly numKeyHeads: number;
  readonly numValueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  /** Tokens that the convolution sees, the current one included. */
  readonly kernelSize: number;
}

export interface Qwen35Config {
  readonly text: Qwen35TextConfig;
  readonly vision: Qwen3VlVisionConfig;
  readonly imageTokenId: number;
}

const DEFAULT_THETA = 10000;
const DEFAULT_ROTARY_FACTOR = 0.25;
const defaultSections: RotarySections = [11, 11, 10];

const ropeFields = z.looseObject({
  partial_rotary_factor: positiveNumber.max(1).nullish(),
  mrope_section: rotarySectionsField.nullish(),
});

/** Models that differ in the perceptrons of their layers. */
export interface Qwen35Variant {
  /** Of the decoder. */
  readonly textType: string;
  /** Of the tower. */
  readonly towerTypes: readonly string[];
  readonly hasExperts: boolean;
  /** transformers' defaults that differ from those of `textFields`. */
  readonly defaults: object;
}

export const denseVariant: Qwen35Variant = {
  textType: "qwen3_5_text",
  towerTypes: ["qwen3_5", "qwen3_5_vision"],
  hasExperts: false,
  defaults: {},
};

export const expertVariant: Qwen35Variant = {
  textType: "qwen3_5_moe_text",
  towerTypes: ["qwen3_5_moe", "qwen3_5_moe_vision"],
  hasExperts: true,
  defaults: { hidden_size: 2048, num_hidden_layers: 40, num_key_value_heads: 2 },
};

const expertDefaults = { numActive: 8, intermediateSize: 512 };

/** transformers' defaults. */
const textFields = z.looseObject({
  vocab_size: vocabularySize.default(248_320),
  hidden_size: width.default(4096),
  intermediate_size: width.default(12_288),
  num_hidden_layers: layerCount.default(32),
  num_attention_heads: headCount.default(16),
  num_key_value_heads: headCount.default(4),
  head_dim: headSize.default(256),
  max_position_embeddings: positionCount.default(32_768),
  rms_norm_eps: normEpsilon.default(1e-6),
  tie_word_embeddings: z.boolean().default(false),
  attention_bias: z.boolean().default(false),
  partial_rotary_factor: positiveNumber.max(1).nullish(),
  rope_parameters: ropeFields.nullish(),
  rope_scaling: ropeFields.nullish(),
  layer_types: z.array(z.string()).nullish(),
  full_attention_interval: count.default(4),
  /** 4 in all models so far. */
  linear_conv_kernel_dim: z.int().min(2).max(1024).default(4),
  linear_num_key_heads: headCount.default(16),
  linear_num_value_heads: headCount.default(32),
  linear_key_head_dim: headSize.default(128),
  linear_value_head_dim: headSize.default(128),
  shared_expert_intermediate_size: width.default(512),
});

const qwen35Fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({ deepstack_visual_indexes: z.array(z.unknown()).nullish() }).default({}),
  image_token_id: z.int().nonnegative().default(248_056),
  tie_word_embeddings: z.boolean().default(false),
});

/** Fields that would change the computation, and the values with which they do not. */
const neutralValues = {
  hidden_act: ["silu", "swish"],
  attn_output_gate: [true],
  mlp_bias: [false],
  quantization_config: [],
} as const;

/** The same for models without experts. */
const noExperts = { num_experts: [0], num_local_experts: [] } as const;

/**
 * Heads that predict further tokens (`mtp_num_hidden_layers` and tensors `mtp.*`) are ignored.
 *
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseQwen35Text(given: unknown, path: string, variant = denseVariant): Qwen35TextConfig {
  const config = { ...variant.defaults, ...parseConfigObject(z.looseObject({}), given, path) };
  const fields = parseConfigObject(textFields, config, path);
  refuseOtherThan(config, path, { model_type: [variant.textType], ...neutralValues });
  refuseOtherThan(config, path, variant.hasExperts ? { norm_topk_prob: [true] } : noExperts);
  const { num_attention_heads: numHeads, num_key_value_heads: numKvHeads, head_dim: headDim } = fields;
  requireWholeGroups(path, numHeads, numKvHeads);
  requireHeadSize(path, headDim);
  const { max_position_embeddings: maxPositionEmbeddings } = fields;
  const rope = parseRopeConfig(config, path, { defaultTheta: DEFAULT_THETA, maxPositionEmbeddings, isPartial: true });
  return {
    vocabSize: fields.vocab_size,
    hiddenSize: fields.hidden_size,
    intermediateSize: fields.intermediate_size,
    layerTypes: layerTypes(fields, path),
    numHeads,
    numKvHeads,
    headDim,
    ...rotary(config, path, fields),
    rope,
    maxPositionEmbeddings: longestSequence(rope, maxPositionEmbeddings),
    rmsNormEpsilon: fields.rms_norm_eps,
    tieWordEmbeddings: fields.tie_word_embeddings,
    hasAttentionBias: fields.attention_bias,
    linear: linearAttention(fields, path),
    experts: variant.hasExperts ? experts(config, path, fields) : null,
  };
}

function experts(config: unknown, path: string, fields: TextFields): Qwen35Experts {
  const shape = parseExpertsShape(config, path, expertDefaults);
  return { ...shape, sharedIntermediateSize: fields.shared_expert_intermediate_size };
}

/** The model with its vision tower. Throws like `parseQwen35Text`. */
export function parseQwen35Config(json: unknown, variant: Qwen35Variant): Qwen35Config {
  const fields = parseConfigObject(qwen35Fields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  const text = parseQwen35Text(fields.text_config, "text_config", variant);
  const { deepstack_visual_indexes: levels } = fields.vision_config;
  if ((levels ?? []).length > 0) {
    const reason = "only the features of the last layer are used";
    throw unsupportedField("vision_config", "deepstack_visual_indexes", levels, reason);
  }
  const visionJson = { ...fields.vision_config, deepstack_visual_indexes: [] };
  return {
    text: { ...text, tieWordEmbeddings: text.tieWordEmbeddings || fields.tie_word_embeddings },
    vision: parseQwen3VlVision(visionJson, text.hiddenSize, variant.towerTypes),
    imageTokenId: fields.image_token_id,
  };
}

/** The state of all linear layers. */
export function recurrentShape({ layerTypes, linear }: Qwen35TextConfig): RecurrentShape {
  return {
    numLayers: layerTypes.filter((type) => type === "linear_attention").length,
    numChannels: numChannels(linear),
    kernelSize: linear.kernelSize,
    matrices: { numHeads: linear.numValueHeads, keyDim: linear.keyDim, valueDim: linear.valueDim },
  };
}

/** Query, key and value of a token side by side. */
export function numChannels({ numKeyHeads, numValueHeads, keyDim, valueDim }: LinearAttentionConfig): number {
  return 2 * numKeyHeads * keyDim + numValueHeads * valueDim;
}

type TextFields = z.output<typeof textFields>;

function layerTypes(fields: TextFields, path: string): readonly LayerType[] {
  const { num_hidden_layers: numLayers, layer_types: given, full_attention_interval: interval } = fields;
  const types =
    given ??
    Array.from({ length: numLayers }, (_, layer) =>
      (layer + 1) % interval === 0 ? "full_attention" : "linear_attention",
    );
  const supported = ["linear_attention", "full_attention"] as const;
  const shown = given ?? `(every ${interval}th full)`;
  return checkLayerTypes(types, { path, numLayers, supported, required: supported, shown });
}

function rotary(
  config: unknown,
  path: string,
  { rope_parameters: parameters, rope_scaling: scaling, ...fields }: TextFields,
): Pick<Qwen35TextConfig, "rotaryDim" | "rotarySections"> {
  const [name, rope] = scaling == null ? ["rope_parameters", parameters] : ["rope_scaling", scaling];
  const ropePath = path === "" ? name : `${path}.${name}`;
  if (rope != null) refuseOtherThan(rope, ropePath, { mrope_interleaved: [true] });
  const factor = rope?.partial_rotary_factor ?? fields.partial_rotary_factor ?? DEFAULT_ROTARY_FACTOR;
  const rotaryDim = Math.trunc(fields.head_dim * factor);
  if (rotaryDim === 0 || rotaryDim % 8 !== 0) {
    const reason = `${rotaryDim} of ${fields.head_dim} dimensions is not a multiple of 8`;
    throw unsupportedField(ropePath, "partial_rotary_factor", factor, reason);
  }
  const rotarySections = rope?.mrope_section ?? defaultSections;
  if (2 * (rotarySections[0] + rotarySections[1] + rotarySections[2]) !== rotaryDim) {
    const reason = `their sum must be half of the ${rotaryDim} rotated dimensions of a head`;
    throw unsupportedField(ropePath, "mrope_section", rotarySections, reason);
  }
  return { rotaryDim, rotarySections };
}

function linearAttention(fields: TextFields, path: string): LinearAttentionConfig {
  const { linear_num_key_heads: numKeyHeads, linear_num_value_heads: numValueHeads } = fields;
  if (numValueHeads % numKeyHeads !== 0) {
    const reason = `it is not a multiple of the ${numKeyHeads} key heads`;
    throw unsupportedField(path, "linear_num_value_heads", numValueHeads, reason);
  }
  return {
    numKeyHeads,
    numValueHeads,
    keyDim: fields.linear_key_head_dim,
    valueDim: fields.linear_value_head_dim,
    kernelSize: fields.linear_conv_kernel_dim,
  };
}
