/** Configuration of LFM3-VL: a tower of gated convolutions and attention over pictures of any size, and LFM3's decoder. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  headCount,
  layerCount,
  normEpsilon,
  parseConfigObject,
  patchSide,
  positiveNumber,
  refuseOtherThan,
  requireWholeGroups,
  unsupportedField,
  width,
} from "../config-field.ts";
import { checkLayerTypes } from "../layer-types.ts";
import type { LfmDecoderConfig } from "../lfm2/config.ts";
import { parseLfm3Config } from "../lfm2/lfm3-config.ts";
import { patchTower, type PatchTowerConfig } from "../patches/patch-tower-config.ts";

export type Lfm3VisionLayerType = "conv" | "full_attention";

export interface Lfm3VisionConfig extends PatchTowerConfig {
  readonly numKvHeads: number;
  readonly layerTypes: readonly Lfm3VisionLayerType[];
  /** Side of the square of patches that a convolution sees. */
  readonly kernelSide: number;
  readonly epsilon: number;
  readonly projector: { readonly width: number; readonly activation: ActivationName; readonly hasBias: boolean };
}

export interface Lfm3VlConfig {
  readonly text: LfmDecoderConfig;
  readonly vision: Lfm3VisionConfig;
  readonly imageTokenId: number;
}

const DEFAULT_THETA = 1_000_000;

const rootFields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(125_030),
  projector_hidden_act: z.string().default("gelu"),
  projector_hidden_size: width.default(4096),
  projector_bias: z.boolean().default(true),
  tie_word_embeddings: z.boolean().default(true),
});

const visionFields = z.looseObject({
  hidden_size: width.default(1024),
  intermediate_size: width.default(2560),
  patch_size: patchSide.default(16),
  spatial_merge_size: patchSide.default(2),
  temporal_patch_size: patchSide.default(2),
  num_hidden_layers: layerCount.default(14),
  num_attention_heads: headCount.default(16),
  num_key_value_heads: headCount.default(8),
  layer_types: z.array(z.string()).nullish(),
  conv_kernel_size: z.int().min(1).max(63).default(3),
  norm_eps: normEpsilon.default(1e-5),
  rope_parameters: z.looseObject({ rope_theta: positiveNumber.default(DEFAULT_THETA) }).nullish(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseLfm3VlConfig(json: unknown): Lfm3VlConfig {
  const fields = parseConfigObject(rootFields, json, "");
  refuseOtherThan(json, "", { model_type: ["lfm3_vl"], quantization_config: [] });
  const text = parseLfm3Config(fields.text_config, "text_config");
  const projector = {
    width: fields.projector_hidden_size,
    activation: parseActivation("", "projector_hidden_act", fields.projector_hidden_act),
    hasBias: fields.projector_bias,
  };
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_word_embeddings },
    vision: { ...parseTower(fields.vision_config), projector },
    imageTokenId: fields.image_token_id,
  };
}

function parseTower(json: unknown): Omit<Lfm3VisionConfig, "projector"> {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, { model_type: ["lfm3_vl_vision"], in_channels: [3], quantization_config: [] });
  refuseOtherThan(fields.rope_parameters ?? {}, `${path}.rope_parameters`, { rope_type: ["axial"] });
  const { num_hidden_layers: depth, num_attention_heads: numHeads, conv_kernel_size: kernelSide } = fields;
  requireWholeGroups(path, numHeads, fields.num_key_value_heads);
  if (kernelSide % 2 === 0) {
    throw unsupportedField(path, "conv_kernel_size", kernelSide, "an even kernel would change the size of a picture");
  }
  const ropeParameters = { rope_theta: fields.rope_parameters?.rope_theta ?? DEFAULT_THETA };
  const tower = patchTower({ ...fields, depth, num_heads: numHeads, rope_parameters: ropeParameters }, path, {
    tower: { field: "hidden_size", value: fields.hidden_size },
    heads: "num_attention_heads",
  });
  const usual = Array.from({ length: depth }, (_, layer) => (layer < 2 || layer % 2 === 1 ? "conv" : "full_attention"));
  return {
    ...tower,
    numKvHeads: fields.num_key_value_heads,
    intermediateSize: fields.intermediate_size,
    layerTypes: checkLayerTypes(fields.layer_types ?? usual, {
      path,
      numLayers: depth,
      supported: ["conv", "full_attention"],
      required: [],
    }),
    kernelSide,
    epsilon: fields.norm_eps,
  };
}
