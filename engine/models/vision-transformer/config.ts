/** The common part of vision transformers' configurations (CLIP, SigLIP and models based on them). */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  count,
  headCount,
  layerCount,
  normEpsilon,
  parseConfigObject,
  pictureSide,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";

export interface VisionConfig {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numChannels: number;
  /** Side of the square picture, in pixels. */
  readonly imageSize: number;
  /** If `imageSize` is not a multiple of it, the remaining pixels at the right and bottom are ignored. */
  readonly patchSize: number;
  readonly activation: ActivationName;
  readonly layerNormEpsilon: number;
}

/** transformers' defaults for fields missing in config.json. */
export interface VisionDefaults {
  readonly hidden_size: number;
  readonly num_attention_heads: number;
  readonly image_size: number;
  readonly patch_size: number;
  readonly hidden_act: ActivationName;
  readonly layer_norm_eps: number;
}

/** One side, or equal height and width. */
const side = z.union(
  [pictureSide, z.tuple([pictureSide, pictureSide]).refine(([height, width]) => height === width)],
  "expected a side from 1 to 16384 pixels, or an equal height and width",
);

const visionFields = z.looseObject({
  hidden_size: width.optional(),
  intermediate_size: width.default(3072),
  num_hidden_layers: layerCount.default(12),
  num_attention_heads: headCount.optional(),
  num_channels: count.default(3),
  image_size: side.optional(),
  patch_size: side.optional(),
  hidden_act: z.string().optional(),
  layer_norm_eps: normEpsilon.optional(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseVisionConfig(config: unknown, path: string, defaults: VisionDefaults): VisionConfig {
  const fields = parseConfigObject(visionFields, config, path);
  refuseOtherThan(config, path, { num_channels: [3], quantization_config: [] });
  const imageSize = sideOf(fields.image_size ?? defaults.image_size);
  const patchSize = sideOf(fields.patch_size ?? defaults.patch_size);
  if (patchSize > imageSize) {
    throw unsupportedField(path, "patch_size", patchSize, `image_size ${imageSize} is smaller than a patch`);
  }
  const hiddenSize = fields.hidden_size ?? defaults.hidden_size;
  const numHeads = fields.num_attention_heads ?? defaults.num_attention_heads;
  if (hiddenSize % numHeads !== 0) {
    throw unsupportedField(path, "num_attention_heads", numHeads, `hidden_size ${hiddenSize} is not a multiple of it`);
  }
  return {
    hiddenSize,
    intermediateSize: fields.intermediate_size,
    numLayers: fields.num_hidden_layers,
    numHeads,
    numChannels: fields.num_channels,
    imageSize,
    patchSize,
    activation: parseActivation(path, "hidden_act", fields.hidden_act ?? defaults.hidden_act),
    layerNormEpsilon: fields.layer_norm_eps ?? defaults.layer_norm_eps,
  };
}

function sideOf(size: number | readonly [number, number]): number {
  return typeof size === "number" ? size : size[0];
}

export function patchesPerSide({ imageSize, patchSize }: VisionConfig): number {
  return Math.floor(imageSize / patchSize);
}

/** Number of patches of one picture. */
export function numPatches(config: VisionConfig): number {
  return patchesPerSide(config) ** 2;
}
