/**
 * Configurations of models with Pixtral's tower: Pixtral in LLaVA's form, and Mistral 3 and LightOnOCR, which merge
 * squares of patches. Of the tower's fields, `image_size` is not read: positions have no limit.
 */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  headCount,
  headSize,
  layerCount,
  parseConfigObject,
  patchSide,
  positiveNumber,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { featureLayers } from "../llava/config.ts";

export interface PixtralVisionConfig {
  /** Width of the tower. */
  readonly embedDim: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly intermediateSize: number;
  readonly activation: ActivationName;
  readonly numChannels: number;
  readonly patchSize: number;
  readonly ropeTheta: number;
  /** Side of the squares of patches that become one embedding. */
  readonly mergeSize: number;
}

export interface PixtralConfig {
  readonly text: DecoderConfig;
  readonly vision: PixtralVisionConfig;
  readonly imageTokenId: number;
  readonly projectorActivation: ActivationName;
  readonly projectorHasBias: boolean;
  /** Hidden states of the tower that are concatenated and projected; 0 is before the first layer. */
  readonly featureLayers: readonly number[];
  /** Whether a norm and a linear layer merge the patches of a square before they are projected. */
  readonly hasPatchMerger: boolean;
  /**
   * The order of a picture's patches: square by square, or row by row. In rows, a last row or column that fills no
   * square is part of the picture, but not of its embeddings.
   */
  readonly patchOrder: "squares" | "rows";
}

const DEFAULT_THETA = 10000;

const visionFields = z.looseObject({
  hidden_size: width.default(1024),
  intermediate_size: width.default(4096),
  num_hidden_layers: layerCount.default(24),
  num_attention_heads: headCount.default(16),
  head_dim: headSize.nullish(),
  patch_size: patchSide.default(16),
  hidden_act: z.string().default("gelu"),
  rope_theta: positiveNumber.default(DEFAULT_THETA),
  rope_parameters: z
    .looseObject({ rope_theta: positiveNumber.optional(), rope_type: z.string().default("axial") })
    .nullish(),
});

const layerSetting = z.union([z.int(), z.array(z.int()).nonempty()]);
const sharedFields = {
  vision_config: z.looseObject({}),
  image_token_id: z.int().nonnegative().optional(),
  image_token_index: z.int().nonnegative().optional(),
  projector_hidden_act: z.string().default("gelu"),
};
const pixtralFields = z.looseObject({
  ...sharedFields,
  text_config: z.looseObject({}).default({}),
  multimodal_projector_bias: z.boolean().default(true),
  vision_feature_layer: layerSetting.default(-2),
  vision_feature_select_strategy: z.string().default("default"),
  tie_word_embeddings: z.boolean().default(false),
});
const mistral3Fields = z.looseObject({
  ...sharedFields,
  text_config: z.looseObject({}),
  multimodal_projector_bias: z.boolean().default(false),
  vision_feature_layer: layerSetting.default(-1),
  spatial_merge_size: patchSide.default(2),
  tie_word_embeddings: z.boolean().default(true),
});

const lightOnOcrFields = z.looseObject({
  ...sharedFields,
  text_config: z.looseObject({}),
  spatial_merge_size: patchSide.default(2),
  tie_word_embeddings: z.boolean().default(true),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parsePixtralConfig(json: unknown): PixtralConfig {
  const fields = parseConfigObject(pixtralFields, json, "");
  const strategy = fields.vision_feature_select_strategy;
  if (strategy !== "full") {
    const reason = "this tower has no class token to leave out, so it must be full";
    throw unsupportedField("", "vision_feature_select_strategy", strategy, reason);
  }
  const { text_config: text } = fields;
  return assemble(json, { ...fields, text }, { ...squares, imageTokenId: 32000, mergeSize: 1, hasPatchMerger: false });
}

/** Throws like `parsePixtralConfig`. */
export function parseMistral3Config(json: unknown): PixtralConfig {
  const fields = parseConfigObject(mistral3Fields, json, "");
  const { vision_feature_layer: layer, spatial_merge_size: mergeSize } = fields;
  if (typeof layer !== "number" && layer.length > 1) {
    throw unsupportedField("", "vision_feature_layer", layer, "the patch merger takes one layer");
  }
  const text = { model_type: "mistral", ...fields.text_config };
  return assemble(json, { ...fields, text }, { ...squares, imageTokenId: 10, mergeSize, hasPatchMerger: true });
}

/** Throws like `parsePixtralConfig`. */
export function parseLightOnOcrConfig(json: unknown): PixtralConfig {
  const fields = parseConfigObject(lightOnOcrFields, json, "");
  // transformers reads none of them, and computes these values.
  refuseOtherThan(json, "", {
    projector_hidden_act: ["gelu"],
    multimodal_projector_bias: [false],
    vision_feature_layer: [-1],
  });
  return assemble(
    json,
    {
      ...fields,
      text: { model_type: "qwen3", ...fields.text_config },
      multimodal_projector_bias: false,
      vision_feature_layer: -1,
    },
    { imageTokenId: 151655, mergeSize: fields.spatial_merge_size, hasPatchMerger: true, patchOrder: "rows" },
  );
}

const squares = { patchOrder: "squares" } as const;

/** The fields that both models have. */
interface SharedFields {
  readonly text: unknown;
  readonly vision_config: unknown;
  readonly image_token_id?: number | undefined;
  readonly image_token_index?: number | undefined;
  readonly projector_hidden_act: string;
  readonly multimodal_projector_bias: boolean;
  readonly vision_feature_layer: number | readonly number[];
  readonly tie_word_embeddings: boolean;
}

function assemble(
  json: unknown,
  fields: SharedFields,
  model: Pick<PixtralConfig, "imageTokenId" | "hasPatchMerger" | "patchOrder"> & { readonly mergeSize: number },
): PixtralConfig {
  refuseOtherThan(json, "", { quantization_config: [] });
  const text = parseTextConfig(fields.text);
  const vision = { ...parseVisionConfig(fields.vision_config), mergeSize: model.mergeSize };
  return {
    // Some versions write it at the top level, others in text_config; either one ties.
    text: { ...text, tieWordEmbeddings: text.tieWordEmbeddings || fields.tie_word_embeddings },
    vision,
    imageTokenId: fields.image_token_index ?? fields.image_token_id ?? model.imageTokenId,
    projectorActivation: parseActivation("", "projector_hidden_act", fields.projector_hidden_act),
    projectorHasBias: fields.multimodal_projector_bias,
    featureLayers: featureLayers(fields.vision_feature_layer, vision.numLayers),
    hasPatchMerger: model.hasPatchMerger,
    patchOrder: model.patchOrder,
  };
}

function parseVisionConfig(json: unknown): Omit<PixtralVisionConfig, "mergeSize"> {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, { model_type: ["pixtral"], num_channels: [3], quantization_config: [] });
  refuseOtherThan(fields.rope_parameters ?? {}, `${path}.rope_parameters`, {
    // "default" in files of the first versions of transformers 5.
    rope_type: ["axial", "default"],
    partial_rotary_factor: [1],
  });
  const { hidden_size: embedDim, num_attention_heads: numHeads } = fields;
  const headDim = embedDim / numHeads;
  if (headDim % 4 !== 0) {
    const reason = `hidden_size ${embedDim} does not divide into heads whose size is a multiple of 4`;
    throw unsupportedField(path, "num_attention_heads", numHeads, reason);
  }
  if (fields.head_dim != null && fields.head_dim !== headDim) {
    throw unsupportedField(path, "head_dim", fields.head_dim, `hidden_size / num_attention_heads is ${headDim}`);
  }
  return {
    embedDim,
    numLayers: fields.num_hidden_layers,
    numHeads,
    intermediateSize: fields.intermediate_size,
    activation: parseActivation(path, "hidden_act", fields.hidden_act),
    numChannels: 3,
    patchSize: fields.patch_size,
    ropeTheta: fields.rope_parameters?.rope_theta ?? fields.rope_theta,
  };
}
