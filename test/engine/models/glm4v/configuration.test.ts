import { expect, test } from "vitest";

import { parseGlm4vConfig, parseGlm4vMoeConfig, parseGlmOcrConfig } from "../../../../engine/models/glm4v/config.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const glm4v = {
  architectures: ["Glm4vForConditionalGeneration"],
  text_config: {
    model_type: "glm4v_text",
    partial_rotary_factor: 0.5,
    rope_scaling: { type: "default", mrope_section: [8, 12, 12] },
  },
  vision_config: { model_type: "glm4v", attention_bias: false },
};
const glm4vMoe = {
  architectures: ["Glm4vMoeForConditionalGeneration"],
  text_config: {
    model_type: "glm4v_moe_text",
    head_dim: 128,
    rope_parameters: { rope_type: "default", mrope_section: [8, 12, 12], rope_theta: 500000 },
  },
  vision_config: { model_type: "glm4v_moe_vision" },
};
const glmOcr = {
  architectures: ["GlmOcrForConditionalGeneration"],
  text_config: {
    head_dim: 128,
    rope_parameters: { rope_type: "default", mrope_section: [16, 24, 24], partial_rotary_factor: 1 },
  },
  vision_config: { out_hidden_size: 1024 },
};

test("missing fields have transformers' defaults", () => {
  expect(parseGlm4vConfig(glm4v)).toMatchObject({
    text: {
      hiddenSize: 4096,
      headDim: 128,
      numKvHeads: 2,
      hasQkvBias: true,
      hasOutputBias: false,
      vocabSize: 151552,
      rotaryDim: 64,
    },
    isGlm: true,
    rotarySections: [8, 12, 12],
    vision: { embedDim: 1536, intermediateSize: 4096, mergerWidth: 13696, positionsPerSide: 24, hasQkvBias: false },
    imageTokenId: 151343,
  });
  expect(parseGlmOcrConfig(glmOcr)).toMatchObject({
    text: { hiddenSize: 1024, headDim: 128, numKvHeads: 8, hasQkvBias: false, vocabSize: 59392, rotaryDim: 128 },
    vision: { intermediateSize: 4096, mergerWidth: 3072, positionsPerSide: null, normalisesQueryAndKey: true },
    imageTokenId: 59280,
  });
  expect(parseGlm4vMoeConfig(glm4vMoe)).toMatchObject({
    text: {
      vocabSize: 151424,
      numHeads: 96,
      maxPositionEmbeddings: 65536,
      hasQkvBias: true,
      rotaryDim: 64,
      rope: { theta: 500000 },
      experts: { numExperts: 128 },
    },
    isGlm: false,
    vision: { intermediateSize: 4096, mergerWidth: 13696, positionsPerSide: 24 },
    imageTokenId: 151363,
  });
});

test("the decoder's fields may be at the top level, as in the first checkpoints of GLM-4.1V", () => {
  const { text_config: text, ...rest } = glm4v;
  const { model_type: _own, ...fields } = text;
  expect(parseGlm4vConfig({ ...rest, ...fields, hidden_size: 4096, num_hidden_layers: 3 })).toMatchObject({
    text: { numLayers: 3, headDim: 128, rotaryDim: 64 },
  });
});

const withTower = (fields: object) => ({ ...glm4v, vision_config: { ...glm4v.vision_config, ...fields } });
const withExperts = (fields: object) => ({ ...glm4vMoe, text_config: { ...glm4vMoe.text_config, ...fields } });
const withText = (fields: object) => ({ ...glm4v, text_config: { ...glm4v.text_config, ...fields } });

const refusals: readonly (readonly [config: object, field: string])[] = [
  [withText({ partial_rotary_factor: 0.25 }), "text_config.mrope_section = [8,12,12]"],
  [withText({ model_type: "glm4v_moe_text" }), 'text_config.model_type = "glm4v_moe_text"'],
  [withText({ num_experts: 128 }), "text_config.num_experts = 128"],
  [withText({ hidden_act: "gelu" }), 'text_config.hidden_act = "gelu"'],
  [withText({ rope_scaling: { rope_type: "yarn2" } }), 'text_config.rope_scaling.rope_type = "yarn2"'],
  [withExperts({ use_qk_norm: true }), "text_config.use_qk_norm = true"],
  [withExperts({ model_type: "glm4v_text" }), 'text_config.model_type = "glm4v_text"'],
  [withTower({ out_hidden_size: 2048 }), "vision_config.out_hidden_size = 2048"],
  [withTower({ num_heads: 7 }), "vision_config.num_heads = 7"],
  [withTower({ hidden_act: "mish" }), 'vision_config.hidden_act = "mish"'],
  [withTower({ in_channels: 1 }), "vision_config.in_channels = 1"],
  [withTower({ model_type: "qwen2_vl" }), 'vision_config.model_type = "qwen2_vl"'],
  [withTower({ rope_parameters: { rope_type: "yarn" } }), 'vision_config.rope_parameters.rope_type = "yarn"'],
  [{ ...glm4v, quantization_config: {} }, "quantization_config = {}"],
];

testRefusals(
  refusals.map(([config, field]): RefusedConfiguration => [config, `config.json: ${field} is not supported`]),
);
