/** Configuration of SigLIP 2's tower for pictures in their own shapes (NaFlex). */
import { z } from "zod";

import { parseConfigObject, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseVisionConfig, type VisionConfig } from "../vision-transformer/config.ts";

export interface Siglip2Config extends VisionConfig {
  /** Side of the square table of positions. */
  readonly positionsPerSide: number;
}

/** 256. */
const MAX_POSITIONS = 65_536;

const siglip2Fields = z.looseObject({ num_patches: z.int().min(1).max(MAX_POSITIONS).default(256) });

const defaults = {
  hidden_size: 768,
  num_attention_heads: 12,
  // It has no such field; pictures have any size.
  image_size: 16_384,
  patch_size: 16,
  hidden_act: "gelu_pytorch_tanh",
  layer_norm_eps: 1e-6,
} as const;

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseSiglip2Config(json: unknown, path: string): Siglip2Config {
  const { num_patches: numPositions } = parseConfigObject(siglip2Fields, json, path);
  refuseOtherThan(json, path, { model_type: ["siglip2_vision_model"] });
  const positionsPerSide = Math.sqrt(numPositions);
  if (!Number.isInteger(positionsPerSide)) {
    throw unsupportedField(path, "num_patches", numPositions, "the positions are no square");
  }
  return { ...parseVisionConfig(json, path, defaults), positionsPerSide };
}
