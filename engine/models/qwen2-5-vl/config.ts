/**
 * Configuration of Qwen2.5-VL. Of a video's fields, `tokens_per_second` is not read: only still pictures are served, and
 * for them it changes nothing.
 */
import { z } from "zod";

import {
  count,
  headCount,
  layerCount,
  parseConfigObject,
  patchSide,
  positiveNumber,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseQwenVlText, type QwenVlTextConfig } from "../qwen2-vl/config.ts";

export interface Qwen25VlVisionConfig {
  /** Width of the tower. */
  readonly embedDim: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly intermediateSize: number;
  readonly numChannels: number;
  readonly patchSize: number;
  /** Number of pictures that a patch spans; a still picture is repeated. */
  readonly temporalPatchSize: number;
  /** Side of the squares of patches that become one embedding. */
  readonly mergeSize: number;
  /** Side of a window, in squares. */
  readonly windowSide: number;
  /** Layers whose attention is not divided into windows. */
  readonly fullAttentionLayers: ReadonlySet<number>;
  readonly ropeTheta: number;
}

export interface Qwen25VlConfig extends QwenVlTextConfig {
  readonly vision: Qwen25VlVisionConfig;
}

const DEFAULT_THETA = 10000;

const visionFields = z.looseObject({
  depth: layerCount.default(32),
  hidden_size: width.default(3584),
  intermediate_size: width.default(3420),
  num_heads: headCount.default(16),
  in_channels: count.default(3),
  patch_size: patchSide.default(14),
  spatial_merge_size: patchSide.default(2),
  temporal_patch_size: patchSide.default(2),
  /** In pixels. */
  window_size: z.int().min(1).max(16_384).default(112),
  out_hidden_size: width.default(3584),
  fullatt_block_indexes: z.array(z.int().nonnegative()).max(1024).default([7, 15, 23, 31]),
  rope_parameters: z.looseObject({ rope_theta: positiveNumber.default(DEFAULT_THETA) }).nullish(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseQwen25VlConfig(json: unknown): Qwen25VlConfig {
  const { visionJson, ...config } = parseQwenVlText(json);
  return { ...config, vision: parseVisionConfig(visionJson, config.text.hiddenSize) };
}

function parseVisionConfig(json: unknown, textHiddenSize: number): Qwen25VlVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: ["qwen2_5_vl", "qwen2_5_vl_vision"],
    hidden_act: ["silu", "swish"],
    in_channels: [3],
    in_chans: [3],
    quantization_config: [],
  });
  const { hidden_size: embedDim, num_heads: numHeads, out_hidden_size: outHiddenSize } = fields;
  if (embedDim % numHeads !== 0 || (embedDim / numHeads) % 4 !== 0) {
    throw unsupportedField(
      path,
      "num_heads",
      numHeads,
      `hidden_size ${embedDim} does not divide into heads whose size is a multiple of 4`,
    );
  }
  if (outHiddenSize !== textHiddenSize) {
    throw unsupportedField(path, "out_hidden_size", outHiddenSize, `the decoder's is ${textHiddenSize}`);
  }
  const squareSize = fields.patch_size * fields.spatial_merge_size;
  const windowSide = Math.floor(fields.window_size / squareSize);
  if (windowSide === 0) {
    throw unsupportedField(
      path,
      "window_size",
      fields.window_size,
      `a window has at least one square of ${squareSize} pixels`,
    );
  }
  return {
    embedDim,
    numLayers: fields.depth,
    numHeads,
    intermediateSize: fields.intermediate_size,
    numChannels: fields.in_channels,
    patchSize: fields.patch_size,
    temporalPatchSize: fields.temporal_patch_size,
    mergeSize: fields.spatial_merge_size,
    windowSide,
    fullAttentionLayers: new Set(fields.fullatt_block_indexes),
    ropeTheta: fields.rope_parameters?.rope_theta ?? DEFAULT_THETA,
  };
}
