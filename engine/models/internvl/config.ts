/** Configuration of InternVL in its Hugging Face form: InternViT over tiles, a pixel shuffle, and a decoder. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import { parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { featureLayers } from "../llava/config.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface InternVisionConfig extends VisionConfig {
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
  tie_word_embeddings: z.boolean().default(true),
});

const visionFields = z.looseObject({
  attention_bias: z.boolean().default(false),
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

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseInternVlConfig(json: unknown): InternVlConfig {
  const fields = parseConfigObject(internVlFields, json, "");
  refuseOtherThan(json, "", { quantization_config: [], vision_feature_select_strategy: ["default"] });
  const text = parseTextConfig({ model_type: "qwen2", ...fields.text_config });
  const vision = parseTower(fields.vision_config);
  const side = patchesPerSide(vision);
  const square = 1 / fields.downsample_ratio;
  if (!Number.isInteger(square) || side % square !== 0) {
    const reason = `the ${side} patches per side of a tile do not divide into squares of ${square}`;
    throw unsupportedField("", "downsample_ratio", fields.downsample_ratio, reason);
  }
  return {
    text: { ...text, tieWordEmbeddings: text.tieWordEmbeddings || fields.tie_word_embeddings },
    vision,
    imageTokenId: fields.image_token_id,
    featureLayer: featureLayers(fields.vision_feature_layer, vision.numLayers)[0]!,
    square,
    projectorActivation: parseActivation("", "projector_hidden_act", fields.projector_hidden_act),
    numImageTokens: (side / square) ** 2,
  };
}

function parseTower(json: object): InternVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: ["internvl_vision"],
    use_absolute_position_embeddings: [true],
    use_mean_pooling: [true],
  });
  return {
    ...parseVisionConfig({ ...visionSizes, ...json }, path, visionDefaults),
    hasQkvBias: fields.attention_bias,
    normalisesQueryAndKey: fields.use_qk_norm,
    norms: fields.norm_type === "rms_norm" ? "rms" : "layer",
  };
}
