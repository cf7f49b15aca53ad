/** Configuration of Qwen3-VL, with and without mixture of experts. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import {
  count,
  headCount,
  layerCount,
  parseConfigObject,
  patchSide,
  refuseOtherThan,
  unsupportedField,
  width,
} from "../config-field.ts";
import { requireDecoderLayers, requireTowerLayers } from "../image-levels.ts";
import { patchTower, patchTowerFields, type PatchTowerConfig } from "../patches/patch-tower-config.ts";
import { parseQwenVlText, type QwenVlTextConfig, type QwenVlTextDefaults } from "../qwen2-vl/config.ts";

export interface Qwen3VlVisionConfig extends PatchTowerConfig {
  readonly activation: ActivationName;
  /** Side of the square of learned positions, which is resized to the picture's patches. */
  readonly positionsPerSide: number;
  /** Layers of the tower whose outputs the decoder's first layers get, one each. */
  readonly levelLayers: readonly number[];
}

export interface Qwen3VlConfig extends QwenVlTextConfig {
  readonly vision: Qwen3VlVisionConfig;
  readonly interleavesSections: true;
  readonly numImageLevels: number;
}

/** Models that differ in their decoders. */
interface Variant {
  readonly text: QwenVlTextDefaults;
  /** Of the tower. */
  readonly modelTypes: readonly string[];
  /** Fields of the decoder, and the values that are computed. */
  readonly onlyValues: Readonly<Record<string, readonly unknown[]>>;
}

const positions = { max_position_embeddings: 128_000, rope_theta: 500_000 };
const sections = [24, 20, 20] as const;

const withoutExperts: Variant = {
  text: { family: "qwen3", fields: positions, sections },
  modelTypes: ["qwen3_vl", "qwen3_vl_vision"],
  onlyValues: {},
};

const expertDefaults = {
  hidden_size: 2048,
  intermediate_size: 5632,
  num_attention_heads: 16,
  num_key_value_heads: 16,
  num_experts_per_tok: 4,
  moe_intermediate_size: 1408,
  norm_topk_prob: true,
} as const;

const withExperts: Variant = {
  text: { family: "qwen3_moe", fields: { ...positions, ...expertDefaults }, sections },
  modelTypes: ["qwen3_vl_moe", "qwen3_vl_moe_vision"],
  onlyValues: { norm_topk_prob: [true] },
};

const visionFields = z.looseObject({
  depth: layerCount.default(27),
  hidden_size: width.default(1152),
  hidden_act: z.string().default("gelu_pytorch_tanh"),
  intermediate_size: width.default(4304),
  num_heads: headCount.default(16),
  in_channels: count.default(3),
  patch_size: patchSide.default(16),
  ...patchTowerFields,
  out_hidden_size: width.default(3584),
  /** 2,304 in all models so far. */
  num_position_embeddings: z.int().min(4).max(1_048_576).default(2304),
  deepstack_visual_indexes: z.array(z.int().nonnegative()).max(1024).default([8, 16, 24]),
});

const tieField = z.looseObject({ tie_word_embeddings: z.boolean().default(false) });
const ropeHolder = z.looseObject({ rope_scaling: z.unknown().optional(), rope_parameters: z.unknown().optional() });

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseQwen3VlConfig(json: unknown): Qwen3VlConfig {
  return parseVariant(json, withoutExperts);
}

/** Throws like `parseQwen3VlConfig`. */
export function parseQwen3VlMoeConfig(json: unknown): Qwen3VlConfig {
  const config = parseVariant(json, withExperts);
  // transformers saves `true` in text_config whatever the model has, and does not read it.
  const { tie_word_embeddings: tieWordEmbeddings } = parseConfigObject(tieField, json, "");
  return { ...config, text: { ...config.text, tieWordEmbeddings } };
}

function parseVariant(json: unknown, { text, modelTypes, onlyValues }: Variant): Qwen3VlConfig {
  const { visionJson, ...config } = parseQwenVlText(json, text);
  refuseTextFields(json, onlyValues);
  const vision = parseQwen3VlVision(visionJson, config.text.hiddenSize, modelTypes);
  requireDecoderLayers(vision.levelLayers, config.text.numLayers);
  const numImageLevels = vision.levelLayers.length;
  return { ...config, vision, interleavesSections: true, numImageLevels };
}

/** Fields that Qwen3 computes and the decoder of Qwen3-VL does not, and the values with which they change nothing. */
function refuseTextFields(json: unknown, onlyValues: Variant["onlyValues"]): void {
  const { text_config: text } = parseConfigObject(z.looseObject({ text_config: z.unknown().optional() }), json, "");
  const [fields, path] = text == null ? [json, ""] : [text, "text_config"];
  refuseOtherThan(fields, path, { use_sliding_window: [false], ...onlyValues });
  const holder = parseConfigObject(ropeHolder, fields, path);
  for (const name of ["rope_scaling", "rope_parameters"] as const) {
    const rope = holder[name];
    if (rope != null) refuseOtherThan(rope, path === "" ? name : `${path}.${name}`, { mrope_interleaved: [true] });
  }
}

/** @param modelTypes Those of the tower. Throws like `parseQwen3VlConfig`. */
export function parseQwen3VlVision(
  json: unknown,
  textHiddenSize: number,
  modelTypes: readonly string[],
): Qwen3VlVisionConfig {
  const path = "vision_config";
  const fields = parseConfigObject(visionFields, json, path);
  refuseOtherThan(json, path, {
    model_type: modelTypes,
    in_channels: [3],
    in_chans: [3],
    quantization_config: [],
  });
  const { hidden_size: embedDim, out_hidden_size: outHiddenSize } = fields;
  const tower = patchTower(fields, path, {
    tower: { field: "hidden_size", value: embedDim },
    output: { field: "out_hidden_size", value: outHiddenSize },
    textHiddenSize,
  });
  const positionsPerSide = Math.sqrt(fields.num_position_embeddings);
  if (!Number.isInteger(positionsPerSide)) {
    throw unsupportedField(path, "num_position_embeddings", fields.num_position_embeddings, "it must be a square");
  }
  const levelLayers = fields.deepstack_visual_indexes;
  requireTowerLayers(levelLayers, fields.depth);
  return {
    ...tower,
    intermediateSize: fields.intermediate_size,
    activation: parseActivation(path, "hidden_act", fields.hidden_act),
    positionsPerSide,
    levelLayers,
  };
}
