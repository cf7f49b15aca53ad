import { expect, test } from "vitest";

import { parseInternVlConfig, parseQianfanOcrConfig } from "../../../../engine/models/internvl/config.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const architectures = ["InternVLForConditionalGeneration"];
const qianfan = ["QianfanOCRForConditionalGeneration"];

test("missing fields have transformers' defaults", () => {
  expect(parseInternVlConfig({ architectures })).toMatchObject({
    text: { hasQkvBias: true, tieWordEmbeddings: true },
    vision: { hiddenSize: 1024, numLayers: 24, imageSize: 448, patchSize: 14, hasQkvBias: false, norms: "layer" },
    imageTokenId: 151667,
    featureLayer: 24,
    square: 2,
    numImageTokens: 256,
  });
});

test("missing fields of Qianfan-OCR have transformers' defaults", () => {
  expect(parseQianfanOcrConfig({ architectures: qianfan })).toMatchObject({
    text: { hasQkvBias: false, normalisesQueryAndKey: true, tieWordEmbeddings: false },
    vision: { hiddenSize: 1024, numLayers: 24, hasQkvBias: true, norms: "layer" },
    imageTokenId: 151667,
    numImageTokens: 256,
  });
});

const refusals: readonly (readonly [config: object, field: string])[] = [
  [{ vision_feature_select_strategy: "full" }, 'vision_feature_select_strategy = "full"'],
  [{ vision_feature_layer: 25 }, "vision_feature_layer = 25"],
  [{ downsample_ratio: 0.3 }, "downsample_ratio = 0.3"],
  [{ vision_config: { image_size: 42 } }, "downsample_ratio = 0.5"],
  [{ vision_config: { use_mean_pooling: false } }, "vision_config.use_mean_pooling = false"],
  [{ vision_config: { use_absolute_position_embeddings: false } }, "vision_config.use_absolute_position_embeddings"],
  [{ vision_config: { model_type: "clip_vision_model" } }, 'vision_config.model_type = "clip_vision_model"'],
  [{ vision_config: { num_channels: 1 } }, "vision_config.num_channels = 1"],
  [{ text_config: { model_type: "gpt_oss" } }, 'text_config.model_type = "gpt_oss"'],
  [{ projector_hidden_act: "mish" }, 'projector_hidden_act = "mish"'],
  [{ quantization_config: {} }, "quantization_config = {}"],
];

const qianfanRefusals: readonly (readonly [config: object, field: string])[] = [
  [{ vision_config: { use_qk_norm: true } }, "vision_config.use_qk_norm = true"],
  [{ vision_config: { qkv_bias: false } }, "vision_config.qkv_bias = false"],
  [{ vision_config: { model_type: "internvl_vision" } }, 'vision_config.model_type = "internvl_vision"'],
];

testRefusals([
  ...refusals.map(([fields, field]): RefusedConfiguration => [{ architectures, ...fields }, `config.json: ${field}`]),
  ...qianfanRefusals.map(([fields, field]): RefusedConfiguration => [
    { architectures: qianfan, ...fields },
    `config.json: ${field}`,
  ]),
]);
