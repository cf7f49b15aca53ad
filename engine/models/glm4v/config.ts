/**
 * Configurations of GLM-4.1V, GLM-OCR and GLM-4.5V: a vision tower over pictures of any size, and a GLM-4 or GLM-4.5
 * decoder with three-axis positions. `attention_bias` of GLM-4 and `num_nextn_predict_layers` are not read, as in
 * transformers: the first belongs to the tower only, and the layers of the second predict tokens ahead.
 */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  headCount,
  layerCount,
  normEpsilon,
  parseConfigObject,
  patchSide,
  pictureSide,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { parseGlm4MoeDecoder } from "../glm4-moe/config.ts";
import { parseDecoderConfig, type DecoderConfig } from "../llama/config.ts";
import { rotatedDimensions, takeRotaryShare } from "../llama/rotary-share.ts";
import { patchTower, patchTowerFields, type PatchTowerConfig } from "../patches/patch-tower-config.ts";
import { rotarySectionsField, type RotarySections } from "../qwen2-vl/config.ts";

export interface Glm4vVisionConfig extends PatchTowerConfig {
  readonly activation: ActivationName;
  readonly epsilon: number;
  readonly hasQkvBias: boolean;
  /** On the projection after attention and in the perceptron. */
  readonly hasOtherBiases: boolean;
  readonly normalisesQueryAndKey: boolean;
  /** Width of the merger's gated perceptron. */
  readonly mergerWidth: number;
  /** Side of the square of learned positions, resized to the picture's patches; null if there is none. */
  readonly positionsPerSide: number | null;
}

export interface Glm4vConfig {
  readonly text: DecoderConfig;
  readonly rotarySections: RotarySections;
  readonly isGlm: boolean;
  readonly vision: Glm4vVisionConfig;
  readonly imageTokenId: number;
  readonly imageOptions: { readonly resizes_like: "glm" };
}

/** The differences between the models. */
interface Family {
  readonly imageTokenId: number;
  readonly modelTypes: { readonly text: string; readonly vision: readonly string[] };
  /** transformers' defaults for missing fields. */
  readonly text: object;
  /** Whether the decoder is GLM-4.5's, with experts. */
  readonly hasExperts?: true;
  readonly vision: object;
  readonly isOcr: boolean;
}

const sharedTower = { depth: 24, patch_size: 14, image_size: 336 };
const glm4v: Family = {
  imageTokenId: 151343,
  modelTypes: { text: "glm4v_text", vision: ["glm4v", "glm4v_vision"] },
  text: {
    vocab_size: 151552,
    hidden_size: 4096,
    intermediate_size: 13696,
    num_hidden_layers: 40,
    num_attention_heads: 32,
    num_key_value_heads: 2,
    max_position_embeddings: 32768,
  },
  vision: { ...sharedTower, hidden_size: 1536, num_heads: 12, out_hidden_size: 4096, intermediate_size: 13696 },
  isOcr: false,
};
const glm4vMoe: Family = {
  imageTokenId: 151363,
  modelTypes: { text: "glm4v_moe_text", vision: ["glm4v_moe", "glm4v_moe_vision"] },
  text: { vocab_size: 151424, max_position_embeddings: 65536, attention_bias: true },
  hasExperts: true,
  vision: glm4v.vision,
  isOcr: false,
};
const glmOcr: Family = {
  imageTokenId: 59280,
  modelTypes: { text: "glm_ocr_text", vision: ["glm_ocr", "glm_ocr_vision"] },
  text: {
    vocab_size: 59392,
    hidden_size: 1024,
    intermediate_size: 4096,
    num_hidden_layers: 16,
    num_attention_heads: 16,
    num_key_value_heads: 8,
    max_position_embeddings: 131072,
  },
  vision: {
    ...sharedTower,
    hidden_size: 1024,
    num_heads: 16,
    out_hidden_size: 1536,
    intermediate_size: 4096,
    attention_bias: true,
  },
  isOcr: true,
};

const glmFields = z.looseObject({
  text_config: z.looseObject({}).nullish(),
  vision_config: z.looseObject({}).default({}),
  image_token_id: z.int().nonnegative().optional(),
  tie_word_embeddings: z.boolean().default(false),
});

const ropeFields = z.looseObject({ mrope_section: rotarySectionsField.optional() });
const textFields = z.looseObject({ rope_scaling: ropeFields.nullish(), rope_parameters: ropeFields.nullish() });
const defaultSections: RotarySections = [8, 12, 12];

const visionFields = z.looseObject({
  depth: layerCount,
  hidden_size: width,
  hidden_act: z.string().default("silu"),
  attention_bias: z.boolean().default(false),
  intermediate_size: width,
  num_heads: headCount,
  image_size: pictureSide,
  patch_size: patchSide,
  rms_norm_eps: normEpsilon.default(1e-5),
  ...patchTowerFields,
  out_hidden_size: width,
});

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGlm4vConfig(json: unknown): Glm4vConfig {
  return parseGlm(json, glm4v);
}

/** Throws like `parseGlm4vConfig`. */
export function parseGlm4vMoeConfig(json: unknown): Glm4vConfig {
  return parseGlm(json, glm4vMoe);
}

/** Throws like `parseGlm4vConfig`. */
export function parseGlmOcrConfig(json: unknown): Glm4vConfig {
  return parseGlm(json, glmOcr);
}

function parseGlm(json: unknown, family: Family): Glm4vConfig {
  const fields = parseConfigObject(glmFields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  const { text, ...positions } = parseText(fields, family);
  return {
    text: { ...text, tieWordEmbeddings: text.tieWordEmbeddings || fields.tie_word_embeddings },
    ...positions,
    vision: parseTower({ ...family.vision, ...fields.vision_config }, family, text.hiddenSize),
    imageTokenId: fields.image_token_id ?? family.imageTokenId,
    imageOptions: { resizes_like: "glm" },
  };
}

function parseText(
  fields: z.output<typeof glmFields>,
  family: Family,
): Pick<Glm4vConfig, "text" | "rotarySections" | "isGlm"> {
  // The first checkpoints on the hub have the decoder's fields at the top level.
  const path = fields.text_config == null ? "" : "text_config";
  const json = fields.text_config ?? fields;
  const { rope_scaling: scaling, rope_parameters: parameters } = parseConfigObject(textFields, json, path);
  if (fields.text_config != null) refuseOtherThan(json, path, { model_type: [family.modelTypes.text] });
  const isGlm = family.hasExperts !== true;
  const given = { ...family.text, ...json };
  const text = isGlm ? parseGlm4Decoder(given, path, !family.isOcr) : parseGlm4MoeDecoder(given, path);
  const rotarySections = (scaling ?? parameters)?.mrope_section ?? defaultSections;
  if (2 * (rotarySections[0] + rotarySections[1] + rotarySections[2]) !== text.rotaryDim) {
    const reason = `their sum must be half of the ${text.rotaryDim} rotated dimensions of a head`;
    throw unsupportedField(path, "mrope_section", rotarySections, reason);
  }
  return { text, rotarySections, isGlm };
}

function parseGlm4Decoder(json: object, path: string, hasQkvBias: boolean): DecoderConfig {
  const { share, rest } = takeRotaryShare({ rms_norm_eps: 1e-5, ...json }, path, 1);
  const text = parseDecoderConfig({ ...rest, attention_bias: false }, path, "llama");
  return { ...text, hasQkvBias, rotaryDim: rotatedDimensions(path, text.headDim, share) };
}

function parseTower(json: object, family: Family, textHiddenSize: number): Glm4vVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, { model_type: family.modelTypes.vision, in_channels: [3], quantization_config: [] });
  refuseOtherThan(fields.rope_parameters ?? {}, `${path}.rope_parameters`, {
    rope_type: ["axial", "default"],
    partial_rotary_factor: [1],
  });
  const { hidden_size: embedDim, out_hidden_size: outHiddenSize } = fields;
  const tower = patchTower(fields, path, {
    tower: { field: "hidden_size", value: embedDim },
    output: { field: "out_hidden_size", value: outHiddenSize },
    textHiddenSize,
  });
  const { isOcr } = family;
  return {
    ...tower,
    // As in transformers: GLM-4.1V's layers have the width of the output, and its merger that of the field.
    intermediateSize: isOcr ? fields.intermediate_size : outHiddenSize,
    activation: parseActivation(path, "hidden_act", fields.hidden_act),
    epsilon: fields.rms_norm_eps,
    hasQkvBias: fields.attention_bias,
    hasOtherBiases: isOcr && fields.attention_bias,
    normalisesQueryAndKey: isOcr,
    mergerWidth: isOcr ? 3 * outHiddenSize : fields.intermediate_size,
    positionsPerSide: isOcr ? null : Math.floor(fields.image_size / fields.patch_size),
  };
}
