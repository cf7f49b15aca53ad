/** Configuration of Qwen2.5-VL. */
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
import { patchTower, patchTowerFields, type PatchTowerConfig } from "../patches/patch-tower-config.ts";
import { parseQwenVlText, type QwenVlTextConfig } from "../qwen2-vl/config.ts";

export interface Qwen25VlVisionConfig extends PatchTowerConfig {
  /** Side of a window, in squares. */
  readonly windowSide: number;
  /** Layers whose attention is not divided into windows. */
  readonly fullAttentionLayers: ReadonlySet<number>;
}

export interface Qwen25VlConfig extends QwenVlTextConfig {
  readonly vision: Qwen25VlVisionConfig;
  readonly imageOptions: { readonly tokens_per_second: number };
}

const visionFields = z.looseObject({
  depth: layerCount.default(32),
  hidden_size: width.default(3584),
  intermediate_size: width.default(3420),
  num_heads: headCount.default(16),
  in_channels: count.default(3),
  patch_size: patchSide.default(14),
  ...patchTowerFields,
  /** In pixels. */
  window_size: z.int().min(1).max(16_384).default(112),
  out_hidden_size: width.default(3584),
  /** Positions in time of a second of a video. */
  tokens_per_second: positiveNumber.max(1000).default(4),
  fullatt_block_indexes: z.array(z.int().nonnegative()).max(1024).default([7, 15, 23, 31]),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseQwen25VlConfig(json: unknown): Qwen25VlConfig {
  const { visionJson, ...config } = parseQwenVlText(json);
  const fields = parseConfigObject(visionFields, visionJson, path);
  return {
    ...config,
    vision: parseVisionConfig(visionJson, fields, config.text.hiddenSize),
    imageOptions: { tokens_per_second: fields.tokens_per_second },
  };
}

const path = "vision_config";

function parseVisionConfig(
  json: unknown,
  fields: z.output<typeof visionFields>,
  textHiddenSize: number,
): Qwen25VlVisionConfig {
  refuseOtherThan(json, path, {
    model_type: ["qwen2_5_vl", "qwen2_5_vl_vision"],
    hidden_act: ["silu", "swish"],
    in_channels: [3],
    in_chans: [3],
    quantization_config: [],
  });
  const { hidden_size: embedDim, out_hidden_size: outHiddenSize } = fields;
  const tower = patchTower(fields, path, {
    tower: { field: "hidden_size", value: embedDim },
    output: { field: "out_hidden_size", value: outHiddenSize },
    textHiddenSize,
  });
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
    ...tower,
    intermediateSize: fields.intermediate_size,
    windowSide,
    fullAttentionLayers: new Set(fields.fullatt_block_indexes),
  };
}
