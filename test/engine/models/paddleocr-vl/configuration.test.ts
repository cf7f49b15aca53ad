import { expect, test } from "vitest";

import { readVisionInterface } from "../../../../engine/models/onnx-export/vision-interface.ts";
import { parsePaddleOcrVlConfig } from "../../../../engine/models/paddleocr-vl/config.ts";
import { paddleOcrVlDefinition } from "../../../../engine/models/paddleocr-vl/definition.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const flat = {
  architectures: ["PaddleOCRVLForConditionalGeneration"],
  num_hidden_layers: 3,
  rope_scaling: { type: "default", rope_type: "default", mrope_section: [16, 24, 24] },
  tie_word_embeddings: false,
  use_3d_rope: true,
  rope_is_neox_style: true,
  vision_config: { model_type: "paddleocr_vl", temporal_patch_size: 2 },
};

test("missing fields have transformers' defaults", () => {
  expect(parsePaddleOcrVlConfig(flat)).toMatchObject({
    text: { numLayers: 3, hiddenSize: 1024, headDim: 128, numKvHeads: 2, hasQkvBias: false, vocabSize: 103_424 },
    rotarySections: [16, 24, 24],
    vision: { embedDim: 1152, numLayers: 27, intermediateSize: 4304, positionsPerSide: 27, temporalPatchSize: 1 },
    imageTokenId: 100_295,
  });
  expect(parsePaddleOcrVlConfig(flat).text.rope).toMatchObject({ theta: 500_000, scaling: { kind: "none" } });
});

test("only both fields together untie the embeddings, as in transformers", () => {
  const isTied = (config: object): boolean => parsePaddleOcrVlConfig(config).text.tieWordEmbeddings;
  expect(isTied(flat)).toBe(true);
  expect(isTied({ ...flat, text_config: {} })).toBe(true);
  expect(isTied({ ...flat, text_config: { tie_word_embeddings: false } })).toBe(false);
  expect(isTied({ ...flat, text_config: { tie_word_embeddings: false }, tie_word_embeddings: true })).toBe(true);
});

test("use_bias is for all projections of the decoder, whatever Llama's fields say", () => {
  const biases = { hasQkvBias: true, hasOutputBias: true, hasMlpBias: true };
  expect(parsePaddleOcrVlConfig({ ...flat, use_bias: true }).text).toMatchObject(biases);
  const nested = { ...flat, text_config: { use_bias: true, attention_bias: false } };
  expect(parsePaddleOcrVlConfig(nested).text).toMatchObject(biases);
});

test("an export is rejected, because its patches are in another order", () => {
  const { visionEncoder } = paddleOcrVlDefinition.configure(flat);
  const file = {
    name: "onnx/vision_encoder.onnx",
    path: "/onnx/vision_encoder.onnx",
    inputs: new Map(),
    outputs: new Map(),
    operators: new Set<string>(),
    files: [],
    externalFiles: new Map<string, number>(),
    byteLength: 0,
  };
  expect(() => readVisionInterface(visionEncoder!, 1024, file)).toThrow(
    "onnx/vision_encoder.onnx is not supported: exports take the patches of this model row by row",
  );
});

const withTower = (fields: object) => ({ ...flat, vision_config: { ...flat.vision_config, ...fields } });
const withText = (fields: object) => ({ ...flat, text_config: fields });

const refusals: readonly (readonly [config: object, field: string])[] = [
  [{ ...flat, use_3d_rope: false }, "use_3d_rope = false"],
  [{ ...flat, rope_is_neox_style: false }, "rope_is_neox_style = false"],
  [{ ...flat, compression_ratio: 2 }, "compression_ratio = 2"],
  [{ ...flat, rope_scaling: { mrope_section: [16, 24, 20] } }, "mrope_section = [16,24,20]"],
  [withText({ model_type: "ernie4_5_moe" }), 'text_config.model_type = "ernie4_5_moe"'],
  [withText({ hidden_act: "gelu" }), 'text_config.hidden_act = "gelu"'],
  [withTower({ num_attention_heads: 64 }), "vision_config.num_attention_heads = 64"],
  [withTower({ hidden_act: "mish" }), 'vision_config.hidden_act = "mish"'],
  [withTower({ num_channels: 1 }), "vision_config.num_channels = 1"],
  [withTower({ model_type: "siglip_vision_model" }), 'vision_config.model_type = "siglip_vision_model"'],
  [withTower({ rope_parameters: { rope_type: "yarn" } }), 'vision_config.rope_parameters.rope_type = "yarn"'],
];

testRefusals(
  refusals.map(([config, field]): RefusedConfiguration => [config, `config.json: ${field} is not supported`]),
);
