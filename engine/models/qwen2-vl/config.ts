/**
 * Configuration of Qwen2-VL: a vision tower over pictures of any size, and a Qwen2 decoder with three-axis positions.
 */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  count,
  headCount,
  layerCount,
  parseConfigObject,
  patchSide,
  positiveNumber,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseDecoderConfig, type DecoderConfig, type DecoderFamily } from "../llama/config.ts";
import { patchTower, patchTowerFields, type PatchTowerConfig } from "../patches/patch-tower-config.ts";

export interface Qwen2VlVisionConfig extends PatchTowerConfig {
  readonly activation: ActivationName;
}

/** How many of a head's frequencies rotate with the first, second and third axis of a position. */
export type RotarySections = readonly [temporal: number, height: number, width: number];

/** The configuration without the tower. */
export interface QwenVlTextConfig {
  readonly text: DecoderConfig;
  readonly rotarySections: RotarySections;
  readonly imageTokenId: number;
}

export interface Qwen2VlConfig extends QwenVlTextConfig {
  readonly vision: Qwen2VlVisionConfig;
}

const visionFields = z.looseObject({
  depth: layerCount.default(32),
  embed_dim: width.default(1280),
  hidden_size: width.default(3584),
  hidden_act: z.string().default("quick_gelu"),
  mlp_ratio: positiveNumber.max(64).default(4),
  num_heads: headCount.default(16),
  in_channels: count.default(3),
  patch_size: patchSide.default(14),
  ...patchTowerFields,
});

export const rotarySectionsField = z.tuple([z.int().nonnegative(), z.int().nonnegative(), z.int().nonnegative()]);
const ropeFields = z.looseObject({
  type: z.string().optional(),
  rope_type: z.string().optional(),
  mrope_section: rotarySectionsField.optional(),
});

const qwen2VlFields = z.looseObject({
  text_config: z.looseObject({}).nullish(),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().default(151655),
  tie_word_embeddings: z.boolean().default(false),
});

const textFields = z.looseObject({
  rope_scaling: ropeFields.nullish(),
  rope_parameters: ropeFields.nullish(),
  tie_word_embeddings: z.boolean().default(false),
});

/** Defaults of Qwen2-VL's decoder that differ from Qwen2's. */
const textDefaults = {
  vocab_size: 152064,
  hidden_size: 8192,
  intermediate_size: 29568,
  num_hidden_layers: 80,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  max_window_layers: 80,
  rope_theta: 1e6,
} as const;
const defaultSections: RotarySections = [16, 24, 24];

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseQwen2VlConfig(json: unknown): Qwen2VlConfig {
  const { visionJson, ...config } = parseQwenVlText(json);
  return { ...config, vision: parseVisionConfig(visionJson, config.text.hiddenSize) };
}

export interface QwenVlTextDefaults {
  readonly family: DecoderFamily;
  readonly fields: object;
  readonly sections: RotarySections;
}

const qwen2TextDefaults: QwenVlTextDefaults = { family: "qwen2", fields: textDefaults, sections: defaultSections };

/** The part that Qwen2-VL and its successors share. Throws like `parseQwen2VlConfig`. */
export function parseQwenVlText(
  json: unknown,
  defaults: QwenVlTextDefaults = qwen2TextDefaults,
): QwenVlTextConfig & { readonly visionJson: unknown } {
  const fields = parseConfigObject(qwen2VlFields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  // Checkpoints on the hub have the decoder's fields at the top level.
  const path = fields.text_config == null ? "" : "text_config";
  const textJson = fields.text_config ?? fields;
  const given = parseConfigObject(textFields, textJson, path);
  const rope = given.rope_scaling ?? given.rope_parameters ?? {};
  const text = parseDecoderConfig(
    { ...defaults.fields, ...textJson, ...withoutSections(given) },
    path,
    defaults.family,
  );
  const rotarySections = rope.mrope_section ?? defaults.sections;
  if (2 * (rotarySections[0] + rotarySections[1] + rotarySections[2]) !== text.headDim) {
    throw unsupportedField(
      path,
      "mrope_section",
      rotarySections,
      `their sum must be half of the head size, ${text.headDim}`,
    );
  }
  return {
    text: { ...text, tieWordEmbeddings: fields.tie_word_embeddings || given.tie_word_embeddings },
    rotarySections,
    imageTokenId: fields.image_token_id,
    visionJson: fields.vision_config,
  };
}

/** Both spellings of the rotary embedding, with its kind as if all three axes were one. */
function withoutSections({ rope_scaling: scaling, rope_parameters: parameters }: z.output<typeof textFields>): object {
  const asOneAxis = (rope: z.output<typeof ropeFields>): object => {
    const kind = rope.rope_type ?? rope.type;
    return { ...rope, rope_type: kind === "mrope" ? "default" : kind };
  };
  return {
    ...(scaling == null ? {} : { rope_scaling: asOneAxis(scaling) }),
    ...(parameters == null ? {} : { rope_parameters: asOneAxis(parameters) }),
  };
}

function parseVisionConfig(json: unknown, textHiddenSize: number): Qwen2VlVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: ["qwen2_vl", "qwen2_vl_vision"],
    in_channels: [3],
    in_chans: [3],
    quantization_config: [],
  });
  const { embed_dim: embedDim, hidden_size: outHiddenSize } = fields;
  const tower = patchTower(fields, path, {
    tower: { field: "embed_dim", value: embedDim },
    output: { field: "hidden_size", value: outHiddenSize },
    textHiddenSize,
  });
  return {
    ...tower,
    intermediateSize: Math.trunc(embedDim * fields.mlp_ratio),
    activation: parseActivation(path, "hidden_act", fields.hidden_act),
  };
}
