/** Configuration of LFM2-VL: SigLIP 2 over the tiles of a picture, squares of patches as embeddings, and LFM2's decoder. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import { parseConfigObject, patchSide, refuseOtherThan, width } from "../config-field.ts";
import { parseLfm2Config, type LfmDecoderConfig } from "../lfm2/config.ts";
import { parseSiglip2Config, type Siglip2Config } from "../siglip2/config.ts";

export interface Lfm2VlConfig {
  readonly text: LfmDecoderConfig;
  readonly vision: Siglip2Config;
  readonly imageTokenId: number;
  readonly projector: {
    /** Side of the squares of patches that become one embedding. */
    readonly square: number;
    readonly width: number;
    readonly activation: ActivationName;
    readonly hasBias: boolean;
    readonly hasNorm: boolean;
  };
}

const lfm2VlFields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().nullish(),
  /** The older name of `image_token_id`. */
  image_token_index: z.int().nonnegative().default(396),
  downsample_factor: patchSide.default(2),
  projector_hidden_act: z.string().default("gelu"),
  projector_hidden_size: width.default(2560),
  projector_bias: z.boolean().default(true),
  projector_use_layernorm: z.boolean().default(true),
  tie_word_embeddings: z.boolean().default(true),
  /** The older name of `tie_word_embeddings`, which it replaces. */
  tie_embedding: z.boolean().optional(),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseLfm2VlConfig(json: unknown): Lfm2VlConfig {
  const fields = parseConfigObject(lfm2VlFields, json, "");
  refuseOtherThan(json, "", {
    model_type: ["lfm2_vl", "lfm2-vl"],
    vision_feature_layer: [-1],
    quantization_config: [],
  });
  const text = parseLfm2Config(fields.text_config, "text_config");
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_embedding ?? fields.tie_word_embeddings },
    vision: parseSiglip2Config(fields.vision_config, "vision_config"),
    imageTokenId: fields.image_token_id ?? fields.image_token_index,
    projector: {
      square: fields.downsample_factor,
      width: fields.projector_hidden_size,
      activation: parseActivation("", "projector_hidden_act", fields.projector_hidden_act),
      hasBias: fields.projector_bias,
      hasNorm: fields.projector_use_layernorm,
    },
  };
}
