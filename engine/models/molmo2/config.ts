/**
 * Configuration of Molmo 2: a vision transformer whose layers' features are pooled by attention, and a decoder of the Llama
 * family. Files on the hub and those that transformers writes have other names for some fields.
 */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  headCount,
  headSize,
  parseConfigObject,
  refuseOtherThan,
  unsupportedField,
  vocabularySize,
  width,
} from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { numPatches, parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";
import { pictureTokens, type PictureToken } from "./layout.ts";

export interface Molmo2Config {
  readonly text: DecoderConfig;
  /** Tokens behind the vocabulary, which prompts may have and answers may not. */
  readonly numAddedTokens: number;
  readonly vision: VisionConfig;
  readonly pooling: PoolingConfig;
  readonly imageTokenId: number;
  /** In the order of `pictureTokens`. */
  readonly pictureTokenIds: readonly number[];
}

export interface PoolingConfig {
  /** Numbers of the tower's layers whose outputs are concatenated: n is the output of the n-th. */
  readonly layers: readonly number[];
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numHeads: number;
  readonly headDim: number;
  readonly activation: ActivationName;
}

const fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).nullish(),
  vit_config: z.looseObject({}).nullish(),
  adapter_config: z.looseObject({}).default({}),
  image_patch_id: z.int().nonnegative().default(151938),
  image_col_id: z.int().nonnegative().default(151939),
  image_start_token_id: z.int().nonnegative().default(151936),
  image_end_token_id: z.int().nonnegative().default(151937),
  low_res_image_start_token_id: z.int().nonnegative().default(151940),
  frame_start_token_id: z.int().nonnegative().default(151943),
  frame_end_token_id: z.int().nonnegative().default(151944),
});

const textFields = z.looseObject({
  additional_vocab_size: vocabularySize.default(128),
  layer_norm_eps: z.number().optional(),
  rms_norm_eps: z.number().optional(),
  qkv_bias: z.boolean().optional(),
  attention_bias: z.boolean().optional(),
  rope_scaling_layers: z.array(z.int()).nullish(),
});

/** transformers' defaults of the decoder. */
const textDefaults = {
  hidden_size: 4096,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: 128,
  vocab_size: 151936,
  num_hidden_layers: 36,
  intermediate_size: 12288,
  max_position_embeddings: 36864,
};

const towerFields = z.looseObject({
  image_default_input_size: z.unknown().optional(),
  image_size: z.unknown().optional(),
  image_patch_size: z.unknown().optional(),
  patch_size: z.unknown().optional(),
  image_num_pos: z.int().nullish(),
  num_position_embeddings: z.int().nullish(),
  num_attention_heads: headCount.default(16),
  num_key_value_heads: headCount.default(16),
  hidden_size: width.default(1152),
  head_dim: headSize.default(72),
});

const towerDefaults = {
  hidden_size: 1152,
  num_attention_heads: 16,
  image_size: 378,
  patch_size: 14,
  hidden_act: "gelu_pytorch_tanh",
  layer_norm_eps: 1e-6,
} as const;

const poolingFields = z.looseObject({
  vit_layers: z.array(z.int()).min(1).max(16).nullish(),
  vision_feature_layer: z.array(z.int()).min(1).max(16).nullish(),
  hidden_size: width.default(1152),
  intermediate_size: width.default(18944),
  num_attention_heads: headCount.default(16),
  num_key_value_heads: headCount.default(16),
  head_dim: headSize.default(72),
  text_hidden_size: width.default(3584),
  hidden_act: z.string().default("silu"),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseMolmo2Config(json: unknown): Molmo2Config {
  const config = parseConfigObject(fields, json, "");
  refuseOtherThan(json, "", { model_type: ["molmo2"], tie_word_embeddings: [false], quantization_config: [] });
  const { text, numAddedTokens } = parseText(config.text_config);
  const path = config.vision_config == null ? "vit_config" : "vision_config";
  const vision = parseTower(config.vision_config ?? config.vit_config ?? {}, path);
  const pooling = parsePooling(config.adapter_config, vision, text.hiddenSize);
  const ids: Readonly<Record<PictureToken, number>> = {
    lowResolutionStart: config.low_res_image_start_token_id,
    start: config.image_start_token_id,
    end: config.image_end_token_id,
    patch: config.image_patch_id,
    lineEnd: config.image_col_id,
    frameStart: config.frame_start_token_id,
    frameEnd: config.frame_end_token_id,
  };
  const pictureTokenIds = pictureTokens.map((token) => ids[token]);
  const first = text.vocabSize;
  for (const id of pictureTokenIds) {
    if (id >= first && id < first + numAddedTokens) continue;
    const reason = `tokens of pictures are among the ${numAddedTokens} behind the vocabulary of ${first}; one is ${id}`;
    throw unsupportedField("text_config", "additional_vocab_size", numAddedTokens, reason);
  }
  return { text, numAddedTokens, vision, pooling, imageTokenId: config.image_patch_id, pictureTokenIds };
}

function parseText(json: object): { readonly text: DecoderConfig; readonly numAddedTokens: number } {
  const path = "text_config";
  const given = parseConfigObject(textFields, json, path);
  refuseOtherThan(json, path, {
    model_type: ["molmo2_text"],
    qk_norm_type: ["qwen3"],
    norm_after: [false],
    tie_word_embeddings: [false],
  });
  const { layer_norm_eps, rms_norm_eps, qkv_bias, attention_bias, rope_scaling_layers: scaled, ...others } = given;
  const { use_qk_norm: _normalises, additional_vocab_size: numAddedTokens, ...rest } = others;
  refuseOtherThan(json, path, { use_qk_norm: [true] });
  const epsilon = rms_norm_eps ?? layer_norm_eps;
  const decoder = {
    ...textDefaults,
    ...rest,
    attention_bias: attention_bias ?? qkv_bias ?? false,
    ...(epsilon !== undefined && { rms_norm_eps: epsilon }),
  };
  const text = parseDecoderConfig(decoder, path, "qwen3");
  // Biases would be those of query, key and value alone.
  if (text.hasQkvBias) throw unsupportedField(path, "qkv_bias", true, "the projections have no biases");
  if (text.rope.scaling.kind !== "none" && scaled != null && scaled.length !== text.numLayers) {
    throw unsupportedField(path, "rope_scaling_layers", scaled, "all layers have the same positions");
  }
  return { text: { ...text, fusesProjections: true }, numAddedTokens };
}

function parseTower(json: object, path: string): VisionConfig {
  const given = parseConfigObject(towerFields, json, path);
  refuseOtherThan(json, path, { attention_bias: [true] });
  const size = given.image_default_input_size ?? given.image_size;
  const patch = given.image_patch_size ?? given.patch_size;
  const { image_default_input_size: _size, image_patch_size: _patch, ...rest } = given;
  const usual = { num_hidden_layers: 25, intermediate_size: 4304 };
  const vision = parseVisionConfig(
    { ...usual, ...rest, ...(size != null && { image_size: size }), ...(patch != null && { patch_size: patch }) },
    path,
    towerDefaults,
  );
  requireHeads(path, given, vision.hiddenSize);
  const field = given.image_num_pos == null ? "num_position_embeddings" : "image_num_pos";
  const positions = given.image_num_pos ?? given.num_position_embeddings;
  if (positions != null && positions !== numPatches(vision)) {
    throw unsupportedField(
      path,
      field,
      positions,
      `a picture has ${patchesPerSide(vision)}x${patchesPerSide(vision)} patches`,
    );
  }
  return vision;
}

function parsePooling(json: object, vision: VisionConfig, textHiddenSize: number): PoolingConfig {
  const path = "adapter_config";
  const given = parseConfigObject(poolingFields, json, path);
  refuseOtherThan(json, path, { attention_bias: [true], mlp_bias: [false], pooling_attention_mask: [true] });
  requireHeads(path, given, given.hidden_size);
  if (given.hidden_size !== vision.hiddenSize) {
    throw unsupportedField(path, "hidden_size", given.hidden_size, `the tower's hidden_size is ${vision.hiddenSize}`);
  }
  if (given.text_hidden_size !== textHiddenSize) {
    throw unsupportedField(path, "text_hidden_size", given.text_hidden_size, `the decoder's is ${textHiddenSize}`);
  }
  const field = given.vit_layers == null ? "vision_feature_layer" : "vit_layers";
  const chosen = given.vit_layers ?? given.vision_feature_layer ?? [24, 18];
  const layers = chosen.map((layer) => (layer < 0 ? vision.numLayers + layer : layer) + 1);
  if (layers.some((layer) => layer < 1 || layer > vision.numLayers)) {
    throw unsupportedField(path, field, chosen, `the tower has ${vision.numLayers} layers`);
  }
  return {
    layers,
    hiddenSize: given.hidden_size,
    intermediateSize: given.intermediate_size,
    numHeads: given.num_attention_heads,
    headDim: given.head_dim,
    activation: parseActivation(path, "hidden_act", given.hidden_act),
  };
}

/** Throws EngineError `unsupported_model` for heads that do not divide the width, or that share keys. */
function requireHeads(
  path: string,
  heads: { readonly num_attention_heads: number; readonly num_key_value_heads: number; readonly head_dim: number },
  hiddenSize: number,
): void {
  const { num_attention_heads: numHeads, num_key_value_heads: numKvHeads, head_dim: headDim } = heads;
  if (numKvHeads !== numHeads) {
    throw unsupportedField(path, "num_key_value_heads", numKvHeads, `there are ${numHeads} heads`);
  }
  if (numHeads * headDim !== hiddenSize) {
    throw unsupportedField(path, "head_dim", headDim, `${numHeads} heads have ${hiddenSize} features`);
  }
}
