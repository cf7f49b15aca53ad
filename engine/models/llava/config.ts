/** Configuration of LLaVA: a vision tower, a projector and a decoder. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import { clipTower } from "../clip/vision-tower.ts";
import { byModelType, parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import type { VisionConfig } from "../vision-transformer/config.ts";
import type { VisionTower } from "../vision-transformer/vision-tower.ts";

export interface LlavaConfig {
  readonly text: DecoderConfig;
  readonly tower: VisionTower;
  readonly vision: VisionConfig;
  readonly imageTokenId: number;
  readonly projectorActivation: ActivationName;
  readonly projectorHasBias: boolean;
  /** Hidden states of the tower that are concatenated and projected; 0 is before the first layer. */
  readonly featureLayers: readonly number[];
  /** Whether the features include the first row of the hidden states (the class token, if the tower has one). */
  readonly keepsFirstToken: boolean;
  /** Number of embeddings of one picture. */
  readonly numImageTokens: number;
}

const llavaFields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({ model_type: z.string().optional() }).optional(),
  image_token_index: z.int().nonnegative().optional(),
  image_token_id: z.int().nonnegative().optional(),
  projector_hidden_act: z.string().default("gelu"),
  multimodal_projector_bias: z.boolean().default(true),
  vision_feature_layer: z.union([z.int(), z.array(z.int()).nonempty()]).default(-2),
  vision_feature_select_strategy: z.string().default("default"),
  tie_word_embeddings: z.boolean().default(false),
});

/** transformers' default tower without vision_config: CLIP ViT-L/14 at 336 pixels. */
const defaultVisionConfig = {
  hidden_size: 1024,
  intermediate_size: 4096,
  patch_size: 14,
  image_size: 336,
  num_hidden_layers: 24,
  num_attention_heads: 16,
};

const towers: Readonly<Record<string, VisionTower>> = {
  clip_vision_model: clipTower,
  siglip_vision_model: siglipTower,
};

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseLlavaConfig(json: unknown): LlavaConfig {
  const fields = parseConfigObject(llavaFields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });

  const visionFields = fields.vision_config ?? defaultVisionConfig;
  const tower = byModelType(towers, "vision_config", fields.vision_config?.model_type ?? "clip_vision_model");

  const text = parseTextConfig(fields.text_config);
  const vision = tower.parseConfig(visionFields, "vision_config");
  const keepsFirstToken = selectStrategy(fields.vision_feature_select_strategy);
  return {
    // Some versions write it at the top level, others in text_config; either one ties.
    text: { ...text, tieWordEmbeddings: text.tieWordEmbeddings || fields.tie_word_embeddings },
    tower,
    vision,
    imageTokenId: fields.image_token_index ?? fields.image_token_id ?? 32000,
    projectorActivation: parseActivation("", "projector_hidden_act", fields.projector_hidden_act),
    projectorHasBias: fields.multimodal_projector_bias,
    featureLayers: featureLayers(fields.vision_feature_layer, vision.numLayers),
    keepsFirstToken,
    numImageTokens: tower.numTokens(vision) - (keepsFirstToken ? 0 : 1),
  };
}

function selectStrategy(strategy: string): boolean {
  switch (strategy) {
    case "default":
      return false;
    case "full":
      return true;
    default:
      throw unsupportedField("", "vision_feature_select_strategy", strategy, "supported are default, full");
  }
}

/**
 * Indices of hidden states from `vision_feature_layer`: negative ones count from the last of the `numLayers + 1`.
 *
 * @throws EngineError `unsupported_model` for a layer that does not exist.
 */
export function featureLayers(setting: number | readonly number[], numLayers: number): number[] {
  const layers = typeof setting === "number" ? [setting] : setting;
  return layers.map((layer) => {
    const index = layer < 0 ? numLayers + 1 + layer : layer;
    if (index < 0 || index > numLayers) {
      throw unsupportedField("", "vision_feature_layer", setting, `the tower has ${numLayers} layers`);
    }
    return index;
  });
}
