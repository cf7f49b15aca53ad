/**
 * Configuration of dots.ocr: a tower over pictures of any size, and a Qwen2 decoder whose tokens lie on a line.
 * `attn_implementation`, `gradient_checkpointing`, `init_merger_std` and `initializer_range` of the tower are about
 * kernels and training, and not read.
 */
import { z } from "zod";

import {
  headCount,
  layerCount,
  normEpsilon,
  parseConfigObject,
  patchSide,
  refuseOtherThan,
  width,
} from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { patchTower, type PatchTowerConfig } from "../patches/patch-tower-config.ts";

export interface DotsVisionConfig extends PatchTowerConfig {
  /** Whether the layers' projections have biases. Those of the first convolution and of the merger always have. */
  readonly hasBias: boolean;
  /** Whether an RMS norm follows the last layer. */
  readonly hasPostNorm: boolean;
  readonly rmsNormEpsilon: number;
}

export interface DotsOcrConfig {
  readonly text: DecoderConfig;
  readonly vision: DotsVisionConfig;
  readonly imageTokenId: number;
}

const rootFields = z.looseObject({
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(151_665),
});

const visionFields = z.looseObject({
  embed_dim: width.default(1536),
  hidden_size: width.default(1536),
  intermediate_size: width.default(4224),
  num_hidden_layers: layerCount.default(42),
  num_attention_heads: headCount.default(12),
  patch_size: patchSide.default(14),
  spatial_merge_size: patchSide.default(2),
  rms_norm_eps: normEpsilon.default(1e-5),
  use_bias: z.boolean().default(false),
  post_norm: z.boolean().default(true),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseDotsOcrConfig(json: unknown): DotsOcrConfig {
  const fields = parseConfigObject(rootFields, json, "");
  refuseOtherThan(json, "", { model_type: ["dots_ocr"] });
  const text = parseDecoderConfig(json, "", "qwen2");
  return { text, vision: parseTower(fields.vision_config, text.hiddenSize), imageTokenId: fields.image_token_id };
}

function parseTower(json: unknown, textHiddenSize: number): DotsVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: ["dots_vit"],
    num_channels: [3],
    // The tower sees the first picture that a patch spans, so there is one.
    temporal_patch_size: [1],
    is_causal: [false],
    quantization_config: [],
  });
  const { num_hidden_layers: depth, num_attention_heads: numHeads } = fields;
  const tower = patchTower({ ...fields, depth, num_heads: numHeads, temporal_patch_size: 1 }, path, {
    tower: { field: "embed_dim", value: fields.embed_dim },
    heads: "num_attention_heads",
    output: { field: "hidden_size", value: fields.hidden_size },
    textHiddenSize,
  });
  return {
    ...tower,
    intermediateSize: fields.intermediate_size,
    hasBias: fields.use_bias,
    hasPostNorm: fields.post_norm,
    rmsNormEpsilon: fields.rms_norm_eps,
  };
}
