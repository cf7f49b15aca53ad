/** Configuration of Idefics3 and SmolVLM: SigLIP over tiles of a picture, a pixel shuffle, and a decoder. */
import { z } from "zod";

import { parseConfigObject, patchSide, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { parseVisionConfig, patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

export interface Idefics3Config {
  readonly text: DecoderConfig;
  readonly vision: VisionConfig;
  readonly imageTokenId: number;
  /** Side of the squares of patches that become one embedding. */
  readonly scaleFactor: number;
  /** Number of embeddings of one tile. */
  readonly numImageTokens: number;
}

const idefics3Fields = z.looseObject({
  // transformers' default without any text_config.
  text_config: z.looseObject({}).default({ rms_norm_eps: 1e-5 }),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(128257),
  scale_factor: patchSide.default(2),
  tie_word_embeddings: z.boolean().default(false),
});

const visionDefaults = {
  hidden_size: 1152,
  num_attention_heads: 16,
  image_size: 224,
  patch_size: 32,
  hidden_act: "gelu_pytorch_tanh",
  layer_norm_eps: 1e-6,
} as const;

/**
 * transformers finds the position of a patch by its coordinates as a fraction of the tile. In a tile without padding
 * that is the patch's own place, except for rounding: with these numbers of patches per side, single precision maps
 * some patches to their neighbours' places. Recorded by `test/fixtures/goldens/smolvlm/record.py`.
 */
export const unevenSides: readonly number[] = [
  19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62, 67, 68, 71, 72, 73, 74, 76, 77, 80,
];
const MAX_PATCHES_PER_SIDE = 80;

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseIdefics3Config(json: unknown): Idefics3Config {
  const fields = parseConfigObject(idefics3Fields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  refuseOtherThan(fields.vision_config, "vision_config", {
    model_type: ["idefics3", "idefics3_vision", "smolvlm", "smolvlm_vision"],
  });
  const text = parseTextConfig(fields.text_config);
  const vision = parseVisionConfig(fields.vision_config, "vision_config", visionDefaults);
  const side = patchesPerSide(vision);
  if (side > MAX_PATCHES_PER_SIDE || unevenSides.includes(side)) {
    const reason = `positions of ${side} patches per side are not known to be evenly spaced`;
    throw unsupportedField("vision_config", "patch_size", vision.patchSize, reason);
  }
  const scaleFactor = fields.scale_factor;
  if (side % scaleFactor !== 0) {
    throw unsupportedField("", "scale_factor", scaleFactor, `${side} patches per side are not divisible by it`);
  }
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_word_embeddings },
    vision,
    imageTokenId: fields.image_token_id,
    scaleFactor,
    numImageTokens: (side / scaleFactor) ** 2,
  };
}
