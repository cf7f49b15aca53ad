/** Configuration of the Gemma 4 without towers: the decoder, and layers over the squares of a picture. */
import { z } from "zod";

import {
  normEpsilon,
  parseConfigObject,
  patchSide,
  positionCount,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parsePicturesConfig, type Gemma4Config } from "./config.ts";
import { parseGemma4TextConfig, type Gemma4TextConfig } from "./text-config.ts";

export interface SquareEmbedderConfig {
  readonly patchSize: number;
  /** Side of the squares of patches, each of which is embedded as a whole. */
  readonly poolingSize: number;
  /** Width of the embedder. */
  readonly embedDim: number;
  /** Rows, and columns, of squares that have an embedding of their position. */
  readonly numPositions: number;
  /** Of the last norm. */
  readonly rmsNormEpsilon: number;
}

/** transformers' defaults. */
const visionFields = z.looseObject({
  patch_size: patchSide.default(16),
  pooling_kernel_size: patchSide.default(3),
  model_patch_size: patchSide.optional(),
  mm_embed_dim: width.default(3840),
  mm_posemb_size: positionCount.default(1120),
  output_proj_dims: width.default(3840),
  rms_norm_eps: normEpsilon.default(1e-6),
});

/** Where the defaults of this decoder differ from those of `Gemma4TextConfig`. */
const textDefaults = {
  sliding_window: 1024,
  use_bidirectional_attention: "vision",
  max_position_embeddings: 262_144,
  hidden_size_per_layer_input: 0,
};

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseUnifiedConfig(json: unknown): Gemma4Config<SquareEmbedderConfig> {
  return parsePicturesConfig(json, { parseText, parseVision });
}

function parseText(json: object, path: string): Gemma4TextConfig {
  const text = { ...textDefaults, ...json };
  refuseOtherThan(text, path, { hidden_size_per_layer_input: [0] });
  return parseGemma4TextConfig(text, path, "gemma4_unified_text");
}

function parseVision(json: object, path: string): SquareEmbedderConfig {
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, { model_type: ["gemma4_unified_vision"], quantization_config: [] });
  const { patch_size: patchSize, pooling_kernel_size: poolingSize, mm_embed_dim: embedDim } = fields;
  const { model_patch_size: squareSize = patchSize * poolingSize, output_proj_dims: projectedDim } = fields;
  if (squareSize !== patchSize * poolingSize) {
    const reason = `squares have ${poolingSize} patches of ${patchSize} pixels on each side`;
    throw unsupportedField(path, "model_patch_size", squareSize, reason);
  }
  if (projectedDim !== embedDim) {
    const reason = `it must be mm_embed_dim, ${embedDim}: the input of the projection`;
    throw unsupportedField(path, "output_proj_dims", projectedDim, reason);
  }
  const { mm_posemb_size: numPositions, rms_norm_eps: rmsNormEpsilon } = fields;
  return { patchSize, poolingSize, embedDim, numPositions, rmsNormEpsilon };
}
