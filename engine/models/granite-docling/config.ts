/** Configuration of Granite-Docling: SigLIP over tiles of a page, a connector of two paths, and Granite's decoder. */
import { z } from "zod";

import { patchSide, parseConfigObject, refuseOtherThan, unsupportedField, width } from "../config-field.ts";
import { requireDecoderLayers, requireTowerLayers } from "../image-levels.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface GraniteDoclingConfig {
  readonly text: DecoderConfig;
  readonly vision: VisionConfig;
  readonly imageTokenId: number;
  /** Side of the squares of patches that become one embedding; the fine path has squares of half of it. */
  readonly scaleFactor: number;
  readonly hasFinePath: boolean;
  /** Layers of the tower whose outputs the decoder's first layers get, one each. */
  readonly levelLayers: readonly number[];
  /** Number of embeddings of one tile. */
  readonly numImageTokens: number;
}

/** The fine path has as many times the embeddings. */
export const FINE_FACTOR = 4;

const fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(100337),
  tie_word_embeddings: z.boolean().default(true),
});

const towerFields = z.looseObject({
  out_hidden_size: width.default(1024),
  scale_factor: patchSide.default(4),
  deepstack_visual_indexes: z.array(z.int().nonnegative()).max(1024).nullish(),
  use_fine_route: z.boolean().default(true),
});

const towerDefaults = {
  hidden_size: 768,
  num_attention_heads: 12,
  image_size: 512,
  patch_size: 16,
  hidden_act: "gelu_pytorch_tanh",
  layer_norm_eps: 1e-6,
} as const;

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGraniteDoclingConfig(json: unknown): GraniteDoclingConfig {
  const { text_config, vision_config, image_token_id, tie_word_embeddings } = parseConfigObject(fields, json, "");
  refuseOtherThan(json, "", { model_type: ["granite_docling"], quantization_config: [] });
  const text = parseTextConfig({ model_type: "granite_docling_text", ...text_config });
  const path = "vision_config";
  refuseOtherThan(vision_config, path, { model_type: ["granite_docling_vision"] });
  const vision = parseVisionConfig(vision_config, path, towerDefaults);
  const tower = parseConfigObject(towerFields, vision_config, path);
  const { out_hidden_size: outHiddenSize, scale_factor: scaleFactor, use_fine_route: hasFinePath } = tower;
  if (outHiddenSize !== text.hiddenSize) {
    const reason = `the decoder's hidden_size is ${text.hiddenSize}`;
    throw unsupportedField(path, "out_hidden_size", outHiddenSize, reason);
  }
  const side = patchesPerSide(vision);
  if (side % scaleFactor !== 0) {
    throw unsupportedField(path, "scale_factor", scaleFactor, `${side} patches per side are not divisible by it`);
  }
  if (hasFinePath && scaleFactor % 2 !== 0) {
    throw unsupportedField(path, "scale_factor", scaleFactor, "the fine path has squares of half of it");
  }
  const levelLayers = tower.deepstack_visual_indexes ?? [3, 7, 10];
  requireTowerLayers(levelLayers, vision.numLayers);
  requireDecoderLayers(levelLayers, text.numLayers);
  return {
    text: { ...text, tieWordEmbeddings: tie_word_embeddings },
    vision,
    imageTokenId: image_token_id,
    scaleFactor,
    hasFinePath,
    levelLayers,
    numImageTokens: (side / scaleFactor) ** 2,
  };
}
