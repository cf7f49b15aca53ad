/** Configuration of GOT-OCR 2.0: SAM's image encoder, two convolutions and a linear layer, and Qwen2. */
import { z } from "zod";

import { parseConfigObject, refuseOtherThan } from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import { parseSamConfig, type SamConfig } from "../sam/config.ts";

export interface GotOcr2Config {
  readonly text: DecoderConfig;
  readonly sam: SamConfig;
  readonly imageTokenId: number;
}

const fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  image_token_index: z.int().nonnegative().optional(),
  image_token_id: z.int().nonnegative().optional(),
  tie_word_embeddings: z.boolean().default(true),
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGotOcr2Config(json: unknown): GotOcr2Config {
  const parsed = parseConfigObject(fields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  refuseOtherThan(parsed.text_config, "text_config", { model_type: ["qwen2"] });
  refuseOtherThan(parsed.vision_config, "vision_config", { model_type: ["got_ocr2_vision", ""] });
  const text = parseTextConfig({ model_type: "qwen2", ...parsed.text_config });
  const sam = parseSamConfig(parsed.vision_config, "vision_config");
  return {
    text: { ...text, tieWordEmbeddings: parsed.tie_word_embeddings },
    // The convolutions belong to the projector here.
    sam: { ...sam, downsampleChannels: [2 * sam.neckChannels, text.hiddenSize] },
    imageTokenId: parsed.image_token_index ?? parsed.image_token_id ?? 151_859,
  };
}
