/**
 * Configuration of MiniCPM-V 4.6 and 4.7 and MiniCPM-OCR: SigLIP over a picture and its slices, mergers of squares, and
 * Qwen3.5's decoder.
 */
import { z } from "zod";

import { parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseQwen35Text, type Qwen35TextConfig } from "../qwen3-5/config.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface MiniCpmVVisionConfig extends VisionConfig {
  /** Rows, and columns, of the table of positions. */
  readonly positionsPerSide: number;
  /** After how many layers windows of 2 x 2 patches become one row each; null: never. */
  readonly windowMergerLayer: number | null;
  /** Side of the squares of patches that become one embedding: 2, or 4 with windows that are merged. */
  readonly mergeSize: number;
}

export interface MiniCpmVConfig {
  readonly text: Qwen35TextConfig;
  readonly vision: MiniCpmVVisionConfig;
  readonly imageTokenId: number;
  /** Tokens that belong to a picture if they follow it; null if tokens have plain positions. */
  readonly markerIds: readonly number[] | null;
}

/** What differs between the models. */
export interface MiniCpmVKind {
  /** Of `vision_config.model_type`. */
  readonly modelTypes: readonly string[];
  /** Whether the tokens of a picture have positions on a canvas. */
  readonly hasCanvas: boolean;
  /** Of missing fields. */
  readonly defaults: { readonly downsample_mode: "16x" | "4x"; readonly tie_word_embeddings: boolean };
}

export const miniCpmV46: MiniCpmVKind = {
  modelTypes: ["minicpmv4_6", "minicpmv4_6_vision"],
  hasCanvas: false,
  defaults: { downsample_mode: "16x", tie_word_embeddings: false },
};

export const miniCpmV47: MiniCpmVKind = {
  modelTypes: ["minicpmv4_7", "minicpmv4_7_vision"],
  hasCanvas: true,
  defaults: { downsample_mode: "16x", tie_word_embeddings: false },
};

export const miniCpmOcr: MiniCpmVKind = {
  modelTypes: ["minicpm_ocr", "minicpm_ocr_vision"],
  hasCanvas: false,
  defaults: { downsample_mode: "4x", tie_word_embeddings: true },
};

const miniCpmVFields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative(),
  /** The one in `vision_config` does not count, as in transformers. */
  insert_layer_id: z.int().nonnegative().default(6),
  downsample_mode: z.enum(["16x", "4x"]).optional(),
  tie_word_embeddings: z.boolean().optional(),
});

const tokenId = z.int().nonnegative();
const markerFields = z.looseObject({
  image_start_id: tokenId,
  image_end_id: tokenId,
  slice_start_id: tokenId,
  slice_end_id: tokenId,
  newline_id: tokenId,
});

/** Sides of squares and windows as lists, of which transformers' code takes only this one. */
const kernelField = z.looseObject({
  merge_kernel_size: z.array(z.unknown()).nullish(),
  window_kernel_size: z.array(z.unknown()).nullish(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseMiniCpmVConfig(json: unknown, { modelTypes, hasCanvas, defaults }: MiniCpmVKind): MiniCpmVConfig {
  const fields = parseConfigObject(miniCpmVFields, json, "");
  refuseOtherThan(json, "", { drop_vision_last_layer: [false], merger_times: [1], quantization_config: [] });
  refuseOtherThan(fields.vision_config, "vision_config", { model_type: modelTypes });
  refuseOtherKernel(json, "", "merge_kernel_size");
  refuseOtherKernel(fields.vision_config, "vision_config", "window_kernel_size");
  const text = parseQwen35Text(fields.text_config, "text_config");
  const vision = siglipTower.parseConfig(fields.vision_config, "vision_config");
  const { insert_layer_id: layer, downsample_mode: mode = defaults.downsample_mode } = fields;
  const isTied = fields.tie_word_embeddings ?? defaults.tie_word_embeddings;
  if (mode === "16x" && layer >= vision.numLayers) {
    throw unsupportedField("", "insert_layer_id", layer, `the vision tower has ${vision.numLayers} layers`);
  }
  return {
    text: { ...text, tieWordEmbeddings: text.tieWordEmbeddings || isTied },
    vision: {
      ...vision,
      positionsPerSide: patchesPerSide(vision),
      windowMergerLayer: mode === "16x" ? layer + 1 : null,
      mergeSize: mode === "16x" ? 4 : 2,
    },
    imageTokenId: fields.image_token_id,
    markerIds: hasCanvas ? markerIdsOf(json) : null,
  };
}

function markerIdsOf(json: unknown): number[] {
  const fields = parseConfigObject(markerFields, json, "");
  return [fields.image_start_id, fields.image_end_id, fields.slice_start_id, fields.slice_end_id, fields.newline_id];
}

function refuseOtherKernel(json: unknown, path: string, field: "merge_kernel_size" | "window_kernel_size"): void {
  const { [field]: sides } = parseConfigObject(kernelField, json, path);
  if (sides != null && JSON.stringify(sides) !== "[2,2]") throw unsupportedField(path, field, sides);
}
