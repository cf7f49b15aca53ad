/** Configuration of SAM's image encoder with the two convolutions of DeepSeek-OCR behind its neck. */
import { z } from "zod";

import { count, layerCount, parseConfigObject, refuseOtherThan, unsupportedField, width } from "../config-field.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

/** `imageSize` is the side of the pictures for which positions are stored; others get them resized. */
export interface SamConfig extends VisionConfig {
  /** Side of the windows of all layers but the global ones, in patches. */
  readonly windowSize: number;
  /** Layers in which every patch sees the whole picture. */
  readonly globalLayers: ReadonlySet<number>;
  /** Channels of the neck. */
  readonly neckChannels: number;
  /** Channels of the convolutions behind the neck, each of which halves both sides. */
  readonly downsampleChannels: readonly [number, number];
}

const samFields = z.looseObject({
  hidden_size: width.default(768),
  mlp_ratio: z.number().positive().max(64).default(4),
  mlp_dim: width.nullish(),
  output_channels: width.default(256),
  window_size: z.int().min(1).max(1024).default(14),
  global_attn_indexes: z.array(z.int().nonnegative()).default([2, 5, 8, 11]),
  downsample_channels: z.tuple([width, width]).nullish(),
  num_hidden_layers: layerCount.default(12),
  num_channels: count.default(3),
});

const defaults = {
  hidden_size: 768,
  num_attention_heads: 12,
  image_size: 1024,
  patch_size: 16,
  hidden_act: "gelu",
  layer_norm_eps: 1e-6,
} as const;

const defaultChannels = [512, 896] as const;

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseSamConfig(json: object, path: string): SamConfig {
  const fields = parseConfigObject(samFields, json, path);
  refuseOtherThan(json, path, { qkv_bias: [true], use_abs_pos: [true], use_rel_pos: [true] });
  const intermediateSize = fields.mlp_dim ?? Math.trunc(fields.hidden_size * fields.mlp_ratio);
  const vision = parseVisionConfig({ ...json, intermediate_size: intermediateSize }, path, defaults);
  if (patchesPerSide(vision) * vision.patchSize !== vision.imageSize) {
    const reason = `image_size ${vision.imageSize} is not a multiple of it`;
    throw unsupportedField(path, "patch_size", vision.patchSize, reason);
  }
  return {
    ...vision,
    windowSize: fields.window_size,
    globalLayers: new Set(fields.global_attn_indexes),
    neckChannels: fields.output_channels,
    downsampleChannels: fields.downsample_channels ?? defaultChannels,
  };
}
