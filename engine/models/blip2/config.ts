/** Configuration of BLIP-2's vision model (EVA ViT-g) and Q-Former, as transformers saves them. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  count,
  headCount,
  layerCount,
  normEpsilon,
  parseConfigObject,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseVisionConfig, type VisionConfig } from "../vision-transformer/config.ts";

export interface QFormerConfig {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly activation: ActivationName;
  readonly layerNormEpsilon: number;
  /** Every n-th layer, from the first on, also attends to the picture. */
  readonly crossAttentionFrequency: number;
  /** Width of the vision model's states. */
  readonly encoderHiddenSize: number;
  /** Number of embeddings of one picture. */
  readonly numQueryTokens: number;
}

export interface Blip2Config {
  readonly vision: VisionConfig;
  readonly qFormer: QFormerConfig;
}

/** transformers' defaults, which are those of EVA ViT-g. */
const visionDefaults = {
  hidden_size: 1408,
  intermediate_size: 6144,
  num_hidden_layers: 39,
  num_attention_heads: 16,
  image_size: 224,
  patch_size: 14,
  hidden_act: "gelu",
  layer_norm_eps: 1e-6,
} as const;

const fields = z.looseObject({
  vision_config: z.looseObject({}).default({}),
  qformer_config: z.looseObject({}).default({}),
  num_query_tokens: count.max(4096).default(32),
});

const qFormerFields = z.looseObject({
  hidden_size: width.default(768),
  intermediate_size: width.default(3072),
  num_hidden_layers: layerCount.default(12),
  num_attention_heads: headCount.default(12),
  hidden_act: z.string().default("gelu"),
  layer_norm_eps: normEpsilon.default(1e-12),
  cross_attention_frequency: count.default(2),
  encoder_hidden_size: width.default(1408),
});

/**
 * @param json The content of config.json.
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseBlip2Config(json: unknown): Blip2Config {
  const parsed = parseConfigObject(fields, json, "");
  const vision = parseVisionConfig({ ...visionDefaults, ...parsed.vision_config }, "vision_config", visionDefaults);
  refuseOtherThan(parsed.vision_config, "vision_config", { qkv_bias: [true] });
  if (vision.imageSize % vision.patchSize !== 0) {
    const reason = `image_size ${vision.imageSize} is not a multiple of it`;
    throw unsupportedField("vision_config", "patch_size", vision.patchSize, reason);
  }
  return { vision, qFormer: parseQFormer(parsed.qformer_config, parsed.num_query_tokens, vision) };
}

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseQFormer(json: unknown, numQueryTokens: number, vision: VisionConfig): QFormerConfig {
  const path = "qformer_config";
  const parsed = parseConfigObject(qFormerFields, json, path);
  refuseOtherThan(json, path, { use_qformer_text_input: [false], position_embedding_type: ["absolute"] });
  const { hidden_size: hiddenSize, num_attention_heads: numHeads, encoder_hidden_size: encoderHiddenSize } = parsed;
  if (hiddenSize % numHeads !== 0) {
    throw unsupportedField(path, "num_attention_heads", numHeads, `hidden_size ${hiddenSize} is not a multiple of it`);
  }
  if (encoderHiddenSize !== vision.hiddenSize) {
    const reason = `vision_config.hidden_size is ${vision.hiddenSize}`;
    throw unsupportedField(path, "encoder_hidden_size", encoderHiddenSize, reason);
  }
  return {
    hiddenSize,
    intermediateSize: parsed.intermediate_size,
    numLayers: parsed.num_hidden_layers,
    numHeads,
    activation: parseActivation(path, "hidden_act", parsed.hidden_act),
    layerNormEpsilon: parsed.layer_norm_eps,
    crossAttentionFrequency: parsed.cross_attention_frequency,
    encoderHiddenSize,
    numQueryTokens,
  };
}
