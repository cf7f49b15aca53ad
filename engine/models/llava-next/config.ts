/**
 * Configurations of LLaVA-NeXT and LLaVA-OneVision: LLaVA's tower, projector and decoder, the resolutions in which a
 * picture is shown, and the embedding at the end of each row.
 */
import { z } from "zod";

import { parseConfigObject, pictureSide, unsupportedField } from "../config-field.ts";
import { parseLlavaConfig, type LlavaConfig } from "../llava/config.ts";
import { numPatches, patchesPerSide } from "../vision-transformer/config.ts";
import type { AnyresModelOptions, Resolution } from "./image-options.ts";

export interface LlavaNextConfig extends LlavaConfig {
  readonly anyres: AnyresModelOptions;
}

const resolutions = z.array(z.tuple([pictureSide, pictureSide])).nonempty();
const anyresFields = z.looseObject({
  image_grid_pinpoints: resolutions.nullish(),
  vision_aspect_ratio: z.string().default("anyres_max_9"),
});
const partFields = z.looseObject({
  text_config: z.looseObject({}).nullish(),
  vision_config: z.looseObject({}).nullish(),
});

const defaultResolutions: readonly Resolution[] = [
  [336, 672],
  [672, 336],
  [672, 672],
  [1008, 336],
  [336, 1008],
];

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseLlavaNextConfig(json: unknown): LlavaNextConfig {
  const fields = parseConfigObject(anyresFields, json, "");
  const processorDefaults = { tileSize: 224, cropsTiles: true };
  return withAnyres(parseLlavaConfig(json), {
    resolutions: fields.image_grid_pinpoints ?? defaultResolutions,
    processorDefaults,
    mostTiles: null,
  });
}

const oneVisionSides = [384, 768, 1152, 1536, 1920, 2304];
const oneVisionTower = {
  model_type: "siglip_vision_model",
  hidden_size: 1152,
  intermediate_size: 4304,
  patch_size: 14,
  image_size: 384,
  num_hidden_layers: 26,
  num_attention_heads: 16,
};

/** Throws like `parseLlavaNextConfig`. */
export function parseLlavaOneVisionConfig(json: unknown): LlavaNextConfig {
  const fields = parseConfigObject(anyresFields, json, "");
  const parts = parseConfigObject(partFields, json, "");
  const llava = parseLlavaConfig({
    image_token_index: parts.image_token_id === undefined ? 151646 : undefined,
    vision_feature_layer: -1,
    vision_feature_select_strategy: "full",
    ...parts,
    text_config: { model_type: "qwen2", ...parts.text_config },
    vision_config:
      parts.vision_config == null ? oneVisionTower : { model_type: "siglip_vision_model", ...parts.vision_config },
  });
  return withAnyres(llava, {
    resolutions:
      fields.image_grid_pinpoints ??
      oneVisionSides.flatMap((height) => oneVisionSides.map((width): Resolution => [height, width])),
    processorDefaults: { tileSize: 384, cropsTiles: false },
    mostTiles: mostTilesOf(fields.vision_aspect_ratio),
  });
}

function mostTilesOf(setting: string): number {
  const mostTiles = Number(/^anyres_max_([1-9]\d{0,2})$/.exec(setting)?.[1]);
  if (!Number.isNaN(mostTiles)) return mostTiles;
  throw unsupportedField("", "vision_aspect_ratio", setting, "supported are anyres_max_1 to anyres_max_999");
}

function withAnyres(llava: LlavaConfig, anyres: Omit<AnyresModelOptions, "featuresPerSide">): LlavaNextConfig {
  if (llava.numImageTokens !== numPatches(llava.vision)) {
    throw unsupportedField(
      "",
      "vision_feature_select_strategy",
      llava.keepsFirstToken ? "full" : "default",
      `with this tower a tile has ${llava.numImageTokens} features, which are not its ${numPatches(llava.vision)} patches`,
    );
  }
  return { ...llava, anyres: { ...anyres, featuresPerSide: patchesPerSide(llava.vision) } };
}
