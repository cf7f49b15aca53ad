/** Configuration of Fuyu: a linear layer over patches, and a Persimmon decoder. */
import { z } from "zod";

import { count, parseConfigObject, patchSide, refuseOtherThan } from "../config-field.ts";
import { parsePersimmonConfig, type PersimmonConfig } from "../persimmon/config.ts";

export interface FuyuConfig {
  readonly text: PersimmonConfig;
  readonly patchSize: number;
  readonly numChannels: number;
  readonly imageTokenId: number;
}

const fuyuFields = z.looseObject({
  text_config: z.looseObject({}).nullish(),
  patch_size: patchSide.default(30),
  num_channels: count.default(3),
  image_token_id: z.int().nonnegative().default(71011),
  tie_word_embeddings: z.boolean().default(false),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseFuyuConfig(json: unknown): FuyuConfig {
  const fields = parseConfigObject(fuyuFields, json, "");
  refuseOtherThan(json, "", { num_channels: [3], quantization_config: [] });
  const nested = fields.text_config ?? null;
  if (nested !== null) refuseOtherThan(nested, "text_config", { model_type: ["persimmon"] });
  const text = nested === null ? parsePersimmonConfig(json, "") : parsePersimmonConfig(nested, "text_config");
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_word_embeddings },
    patchSize: fields.patch_size,
    numChannels: fields.num_channels,
    imageTokenId: fields.image_token_id,
  };
}
