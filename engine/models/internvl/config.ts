/**
 * Configuration of InternVL in its Hugging Face form, and of Qianfan-OCR: InternViT over tiles, a pixel shuffle, and a
 * decoder.
 */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import { parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { featureLayers } from "../llava/config.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

/** Whose names the vision tower's and the projector's tensors have. */
export type TensorNaming = "transformers" | "original";

export interface InternVisionConfig extends VisionConfig {
  readonly naming: TensorNaming;
  readonly hasQkvBias: boolean;
  readonly normalisesQueryAndKey: boolean;
  readonly norms: "layer" | "rms";
}

export interface InternVlConfig {
  readonly text: DecoderConfig;
  readonly vision: InternVisionConfig;
  readonly imageTokenId: number;
  /** Hidden state of the tower that is projected; 0 is before the first layer. */
  readonly featureLayer: number;
  /** Side of the squares of patches that become one embedding. */
  readonly square: number;
  readonly projectorActivation: ActivationName;
  /** Number of embeddings of one tile. */
  readonly numImageTokens: number;
}

const internVlFields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(151667),
  downsample_ratio: z.number().positive().max(1).default(0.5),
  projector_hidden_act: z.string().default("gelu"),
  vision_feature_layer: z.union([z.int(), z.tuple([z.int()])]).default(-1),
  tie_word_embeddings: z.boolean().optional(),
});

const visionFields = z.looseObject({
  attention_bias: z.boolean().optional(),
  use_qk_norm: z.boolean().default(false),
  norm_type: z.enum(["layer_norm", "rms_norm"], '"layer_norm" or "rms_norm"').default("layer_norm"),
});

const visionSizes = { intermediate_size: 4096, num_hidden_layers: 24 };
const visionDefaults = {
  hidden_size: 1024,
  num_attention_heads: 16,
  image_size: 448,
  patch_size: 14,
  hidden_act: "gelu",
  layer_norm_eps: 1e-6,
} as const;

/** The differences between the two models. */
interface Family {
  readonly naming: TensorNaming;
  /** Default of `text_config.model_type`. */
  readonly textType: string;
  readonly towerType: string;
  readonly hasQkvBias: boolean;
  readonly tieWordEmbeddings: boolean;
  /** Values of fields of the tower that are computed. */
  readonly towerValues: Readonly<Record<string, readonly unknown[]>>;
}

const internVl: Family = {
  naming: "transformers",
  textType: "qwen2",
  towerType: "internvl_vision",
  hasQkvBias: false,
  tieWordEmbeddings: true,
  towerValues: {},
};
const qianfanOcr: Family = {
  naming: "original",
  textType: "qwen3",
  towerType: "qianfan_ocr_vision",
  hasQkvBias: true,
  tieWordEmbeddings: false,
  // The second is an older name of `attention_bias`, which transformers does not read.
  towerValues: { use_qk_norm: [false], qkv_bias: [true] },
};

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseInternVlConfig(json: unknown): InternVlConfig {
  return parseConfig(json, internVl);
}

/** Throws like `parseInternVlConfig`. */
export function parseQianfanOcrConfig(json: unknown): InternVlConfig {
  return parseConfig(json, qianfanOcr);
}

function parseConfig(json: unknown, family: Family): InternVlConfig {
  const fields = parseConfigObject(internVlFields, json, "");
  refuseOtherThan(json, "", { quantization_config: [], vision_feature_select_strategy: ["default"] });
  const text = parseTextConfig({ model_type: family.textType, ...fields.text_config });
  const vision = parseTower(fields.vision_config, family);
  const side = patchesPerSide(vision);
  const square = 1 / fields.downsample_ratio;
  if (!Number.isInteger(square) || side % square !== 0) {
    const reason = `the ${side} patches per side of a tile do not divide into squares of ${square}`;
    throw unsupportedField("", "downsample_ratio", fields.downsample_ratio, reason);
  }
  return {
    text: {
      ...text,
      tieWordEmbeddings: text.tieWordEmbeddings || (fields.tie_word_embeddings ?? family.tieWordEmbeddings),
    },
    vision,
    imageTokenId: fields.image_token_id,
    featureLayer: featureLayers(fields.vision_feature_layer, vision.numLayers)[0]!,
    square,
    projectorActivation: parseActivation("", "projector_hidden_act", fields.projector_hidden_act),
    numImageTokens: (side / square) ** 2,
  };
}

function parseTower(json: object, family: Family): InternVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: [family.towerType],
    use_absolute_position_embeddings: [true],
    use_mean_pooling: [true],
    ...family.towerValues,
  });
  return {
    ...parseVisionConfig({ ...visionSizes, ...json }, path, visionDefaults),
    naming: family.naming,
    hasQkvBias: fields.attention_bias ?? family.hasQkvBias,
    normalisesQueryAndKey: fields.use_qk_norm,
    norms: fields.norm_type === "rms_norm" ? "rms" : "layer",
  };
}
