/** Configuration of Gemma 3: a decoder with windows in most of its layers, alone or with a SigLIP tower. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
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
import { parseRopeConfig, type RopeConfig } from "../llama/rope.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface Gemma3TextConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly activation: ActivationName;
  readonly maxPositionEmbeddings: number;
  readonly rmsNormEpsilon: number;
  readonly tieWordEmbeddings: boolean;
  /** The products of query and key are divided by its root. */
  readonly queryScalar: number;
  /** Tokens that a position sees in each layer, itself included; null means all before it. */
  readonly slidingWindows: readonly (number | null)[];
  /** Of layers without a window. */
  readonly globalRope: RopeConfig;
  readonly localRope: RopeConfig;
  /** Logits are bent into the range from minus to plus this value; null leaves them as they are. */
  readonly logitSoftcap: number | null;
}

export interface Gemma3Config {
  readonly text: Gemma3TextConfig;
  readonly vision: VisionConfig;
  readonly imageTokenId: number;
  /** Embeddings of one picture: a square grid, pooled from the patches. */
  readonly tokensPerSide: number;
}

/** transformers' defaults: files on the hub leave out most fields. */
const textFields = z.looseObject({
  vocab_size: vocabularySize.default(262_208),
  hidden_size: width.default(2304),
  intermediate_size: width.default(9216),
  num_hidden_layers: layerCount.default(26),
  num_attention_heads: headCount.default(8),
  num_key_value_heads: headCount.default(4),
  head_dim: headSize.default(256),
  hidden_activation: z.string().default("gelu_pytorch_tanh"),
  max_position_embeddings: positionCount.default(131_072),
  rms_norm_eps: normEpsilon.default(1e-6),
  tie_word_embeddings: z.boolean().default(true),
  query_pre_attn_scalar: positiveNumber.default(256),
  sliding_window: positionCount.nullable().default(4096),
  sliding_window_pattern: z.int().positive().default(6),
  layer_types: z.array(z.string()).nullish(),
  final_logit_softcapping: positiveNumber.nullish(),
  rope_theta: positiveNumber.nullish(),
  rope_local_base_freq: positiveNumber.nullish(),
  rope_scaling: z.looseObject({}).nullish(),
  rope_parameters: z
    .looseObject({ full_attention: z.looseObject({}).nullish(), sliding_attention: z.looseObject({}).nullish() })
    .nullish(),
});

const neutralValues = {
  attention_bias: [false],
  attn_logit_softcapping: [],
  use_bidirectional_attention: [false],
  quantization_config: [],
} as const;

const GLOBAL_THETA = 1_000_000;
const LOCAL_THETA = 10_000;

/**
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseGemma3TextConfig(json: unknown, path: string): Gemma3TextConfig {
  const fields = parseConfigObject(textFields, json, path);
  refuseOtherThan(json, path, neutralValues);
  const { num_attention_heads: numHeads, num_key_value_heads: numKvHeads, head_dim: headDim } = fields;
  requireWholeGroups(path, numHeads, numKvHeads);
  requireHeadSize(path, headDim);
  return {
    vocabSize: fields.vocab_size,
    hiddenSize: fields.hidden_size,
    intermediateSize: fields.intermediate_size,
    numLayers: fields.num_hidden_layers,
    numHeads,
    numKvHeads,
    headDim,
    activation: parseActivation(path, "hidden_activation", fields.hidden_activation),
    maxPositionEmbeddings: fields.max_position_embeddings,
    rmsNormEpsilon: fields.rms_norm_eps,
    tieWordEmbeddings: fields.tie_word_embeddings,
    queryScalar: fields.query_pre_attn_scalar,
    slidingWindows: slidingWindows(fields, path),
    ...ropesOf(fields, path),
    logitSoftcap: fields.final_logit_softcapping ?? null,
  };
}

function slidingWindows(fields: z.output<typeof textFields>, path: string): (number | null)[] {
  const { num_hidden_layers: numLayers, sliding_window: window, sliding_window_pattern: pattern } = fields;
  const types =
    fields.layer_types ??
    Array.from({ length: numLayers }, (_, layer) =>
      (layer + 1) % pattern === 0 ? "full_attention" : "sliding_attention",
    );
  if (types.length !== numLayers) throw unsupportedField(path, "layer_types", types, `there are ${numLayers} layers`);
  return types.map((type) => {
    if (type === "full_attention") return null;
    if (type === "sliding_attention" && window !== null) return window;
    throw unsupportedField(path, "layer_types", type);
  });
}

/** In transformers 5 each kind of layer has its own object; before, only layers without a window were scaled. */
function ropesOf(
  { rope_parameters: parameters, ...fields }: z.output<typeof textFields>,
  path: string,
): Pick<Gemma3TextConfig, "globalRope" | "localRope"> {
  const { max_position_embeddings: maxPositionEmbeddings } = fields;
  const older = { rope_theta: fields.rope_theta, rope_scaling: fields.rope_scaling };
  const global = parameters?.full_attention == null ? older : { rope_parameters: parameters.full_attention };
  const local =
    parameters?.sliding_attention == null
      ? { rope_theta: fields.rope_local_base_freq }
      : { rope_parameters: parameters.sliding_attention };
  return {
    globalRope: parseRopeConfig(global, path, { defaultTheta: GLOBAL_THETA, maxPositionEmbeddings }),
    localRope: parseRopeConfig(local, path, { defaultTheta: LOCAL_THETA, maxPositionEmbeddings }),
  };
}

const gemma3Fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  mm_tokens_per_image: z.int().positive().default(256),
  image_token_index: z.int().nonnegative().optional(),
  image_token_id: z.int().nonnegative().optional(),
  tie_word_embeddings: z.boolean().optional(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGemma3Config(json: unknown): Gemma3Config {
  const fields = parseConfigObject(gemma3Fields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  refuseOtherThan(fields.text_config, "text_config", { model_type: ["gemma3_text"] });
  refuseOtherThan(fields.vision_config, "vision_config", { model_type: ["siglip_vision_model"] });
  const text = parseGemma3TextConfig(fields.text_config, "text_config");
  const vision = siglipTower.parseConfig(fields.vision_config, "vision_config");
  const tokensPerSide = Math.sqrt(fields.mm_tokens_per_image);
  const numPatches = patchesPerSide(vision);
  if (!Number.isInteger(tokensPerSide) || numPatches % tokensPerSide !== 0) {
    throw unsupportedField(
      "",
      "mm_tokens_per_image",
      fields.mm_tokens_per_image,
      `expected the square of a number by which ${numPatches}, the patches of a side, can be divided`,
    );
  }
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_word_embeddings ?? text.tieWordEmbeddings },
    vision,
    imageTokenId: fields.image_token_index ?? fields.image_token_id ?? 262_144,
    tokensPerSide,
  };
}
