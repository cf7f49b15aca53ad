import { expect, test } from "vitest";

import { parseDotsOcrConfig } from "../../../../engine/models/dots-ocr/config.ts";
import { countParameters } from "../counted-parameters.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const config = { architectures: ["DotsOCRForCausalLM"], model_type: "dots_ocr", hidden_size: 1536, vision_config: {} };
const withTower = (fields: object) => ({ ...config, vision_config: fields });

test("missing fields have the defaults of Qwen2 and of the tower", () => {
  expect(parseDotsOcrConfig(config)).toMatchObject({
    text: { numLayers: 32, numKvHeads: 32, hasQkvBias: true, hasOutputBias: false, vocabSize: 151_936 },
    vision: { embedDim: 1536, numLayers: 42, numHeads: 12, intermediateSize: 4224, hasBias: false, hasPostNorm: true },
    imageTokenId: 151_665,
  });
  expect(parseDotsOcrConfig(config).vision).toMatchObject({ patchSize: 14, mergeSize: 2, temporalPatchSize: 1 });
});

test("biases are in all projections of the tower's layers, and the last norm can be left out", () => {
  const tower = { embed_dim: 32, intermediate_size: 44, num_hidden_layers: 3, num_attention_heads: 4 };
  const usual = countParameters(withTower(tower));
  // qkv, proj, fc1, fc3 and fc2 of each layer.
  expect(countParameters(withTower({ ...tower, use_bias: true })) - usual).toBe(3 * (96 + 32 + 44 + 44 + 32));
  expect(usual - countParameters(withTower({ ...tower, post_norm: false }))).toBe(32);
});

const refusals: readonly (readonly [config: object, field: string])[] = [
  [{ ...config, model_type: "dots1" }, 'model_type = "dots1"'],
  [{ ...config, hidden_act: "gelu" }, 'hidden_act = "gelu"'],
  [{ ...config, num_experts: 4 }, "num_experts = 4"],
  [withTower({ is_causal: true }), "vision_config.is_causal = true"],
  [withTower({ temporal_patch_size: 2 }), "vision_config.temporal_patch_size = 2"],
  [withTower({ num_channels: 1 }), "vision_config.num_channels = 1"],
  [withTower({ num_attention_heads: 768 }), "vision_config.num_attention_heads = 768"],
  [withTower({ hidden_size: 1024 }), "vision_config.hidden_size = 1024"],
  [withTower({ model_type: "qwen2_vl" }), 'vision_config.model_type = "qwen2_vl"'],
];

testRefusals(
  refusals.map(([refused, field]): RefusedConfiguration => [refused, `config.json: ${field} is not supported`]),
);
