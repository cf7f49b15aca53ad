import { expect, test } from "vitest";

import { parseHunYuanDenseConfig, parseHunYuanVlConfig } from "../../../../engine/models/hunyuan-vl/config.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const rope = { type: "xdrope", alpha: 1000, xdrope_section: [16, 16, 16, 16] };
const flat = {
  architectures: ["HunYuanVLForConditionalGeneration"],
  attention_head_dim: 128,
  use_qk_norm: true,
  num_experts: 1,
  rope_scaling: rope,
  vision_config: { model_type: "hunyuan_vl" },
};
const nested = {
  architectures: flat.architectures,
  text_config: { model_type: "hunyuan_vl_text", head_dim: 128, rope_parameters: { ...rope, rope_theta: 10_000 } },
  vision_config: { model_type: "hunyuan_vl_vision" },
};

test.for([flat, nested])("missing fields have transformers' defaults", (config) => {
  const { text, sections, vision, imageTokenId } = parseHunYuanVlConfig(config);
  expect(text).toMatchObject({ hiddenSize: 4096, numLayers: 32, numKvHeads: 32, headDim: 128, vocabSize: 290_943 });
  expect(text).toMatchObject({ normalisesQueryAndKey: true, hasQkvBias: false, tieWordEmbeddings: true });
  expect(text.rope).toEqual({ theta: 10_000 * 1000 ** (128 / 126), scaling: { kind: "none" } });
  expect(sections).toEqual([16, 16, 16, 16]);
  expect(vision).toMatchObject({
    positionsPerSide: 128,
    mergeSize: 2,
    transformer: { numLayers: 27, hiddenSize: 1152 },
  });
  expect(imageTokenId).toBe(120_120);
});

const dense = { architectures: ["HunYuanDenseV1ForCausalLM"], model_type: "hunyuan_v1_dense", head_dim: 128 };

test("text models are not tied, and alpha stretches the base of their rotation", () => {
  const config = parseHunYuanDenseConfig(dense);
  expect(config).toMatchObject({
    numLayers: 32,
    vocabSize: 290_943,
    maxPositionEmbeddings: 2048,
    rmsNormEpsilon: 1e-5,
  });
  expect(config).toMatchObject({ normalisesQueryAndKey: true, tieWordEmbeddings: false });
  expect(config.rope).toEqual({ theta: 10_000, scaling: { kind: "none" } });
  const stretched = parseHunYuanDenseConfig({ ...dense, rope_scaling: { type: "dynamic", alpha: 50 } });
  expect(stretched.rope.theta).toBeCloseTo(10_000 * 50 ** (128 / 126), 6);
});

testRefusals(
  (
    [
      [{ ...dense, model_type: "hunyuan_v1_moe" }, 'model_type = "hunyuan_v1_moe"'],
      [{ ...dense, position_embedding_xdrope: true }, "position_embedding_xdrope = true"],
      [{ ...dense, rope_scaling: { type: "xdrope", xdrope_section: [16, 16, 16, 16] } }, 'rope_type = "xdrope"'],
      [{ ...dense, rope_scaling: { type: "yarn", factor: 2 } }, 'rope_type = "yarn"'],
      [{ ...dense, use_mla: true }, "use_mla = true"],
      [{ ...dense, use_qk_norm: false }, "use_qk_norm = false"],
      [{ ...dense, num_experts: 16 }, "num_experts = 16"],
    ] as const
  ).map(([config, field]): RefusedConfiguration => [config, `${field} is not supported`]),
);

test("both names of a field may be given with the same value", () => {
  const config = { ...flat, head_dim: 128, vocab_size: 500, org_vocab_size: 500 };
  expect(parseHunYuanVlConfig(config).text).toMatchObject({ headDim: 128, vocabSize: 500 });
  const scaling = { ...rope, mrope_section: rope.xdrope_section };
  expect(parseHunYuanVlConfig({ ...flat, rope_scaling: scaling }).sections).toEqual(rope.xdrope_section);
});

test("the tower's fields may have the names that transformers reads too", () => {
  const tower = { layer_norm_eps: 1e-3, attention_heads: 8 };
  const { vision } = parseHunYuanVlConfig({ ...flat, vision_config: { ...flat.vision_config, ...tower } });
  expect(vision).toMatchObject({ epsilon: 1e-3, transformer: { layerNormEpsilon: 1e-3, numHeads: 8 } });
});

test("alpha changes the base of xdrope and dynamic only", () => {
  const thetaOf = (fields: object): number =>
    parseHunYuanVlConfig({ ...flat, rope_scaling: { ...rope, ...fields } }).text.rope.theta;
  expect(thetaOf({ type: "dynamic" })).toBe(thetaOf({}));
  expect(thetaOf({ type: "default" })).toBe(10_000);
  expect(thetaOf({ alpha: null })).toBe(10_000);
});

test("only both fields together untie the embeddings, as in transformers", () => {
  const isTied = (config: object): boolean => parseHunYuanVlConfig(config).text.tieWordEmbeddings;
  const untied = { ...nested, text_config: { ...nested.text_config, tie_word_embeddings: false } };
  expect(isTied({ ...flat, tie_word_embeddings: false })).toBe(true);
  expect(isTied({ ...nested, tie_word_embeddings: false })).toBe(true);
  expect(isTied(untied)).toBe(true);
  expect(isTied({ ...untied, tie_word_embeddings: false })).toBe(false);
});

const withTower = (fields: object) => ({ ...flat, vision_config: { ...flat.vision_config, ...fields } });
const withRope = (fields: object) => ({ ...flat, rope_scaling: { ...rope, ...fields } });

const refusals: readonly (readonly [config: object, field: string])[] = [
  [{ ...flat, head_dim: 64 }, "attention_head_dim = 128"],
  [{ ...flat, vocab_size: 500, org_vocab_size: 400 }, "org_vocab_size = 400"],
  [{ ...flat, use_qk_norm: false }, "use_qk_norm = false"],
  [{ ...flat, num_experts: 8 }, "num_experts = 8"],
  [{ ...flat, use_cla: true }, "use_cla = true"],
  [{ ...flat, norm_type: "layer" }, 'norm_type = "layer"'],
  [{ ...flat, mlp_bias: true }, "mlp_bias = true"],
  [{ ...flat, hidden_act: "gelu" }, 'hidden_act = "gelu"'],
  [{ ...flat, model_type: "hunyuan_v1_dense" }, 'model_type = "hunyuan_v1_dense"'],
  [{ ...nested, text_config: { model_type: "llama" } }, 'text_config.model_type = "llama"'],
  [withRope({ type: "yarn" }), 'rope_scaling.rope_type = "yarn"'],
  [withRope({ xdrope_section: [16, 16, 16] }), "rope_scaling.xdrope_section = [16,16,16]"],
  [withRope({ xdrope_section: null }), "rope_scaling.mrope_section = null"],
  [withRope({ mrope_section: [32, 16, 16] }), "rope_scaling.xdrope_section = [16,16,16,16]"],
  [withTower({ num_attention_heads: 7 }), "vision_config.num_attention_heads = 7"],
  [withTower({ attention_heads: 8, num_attention_heads: 16 }), "vision_config.attention_heads = 8"],
  [withTower({ layer_norm_eps: 1e-6, rms_norm_eps: 1e-5 }), "vision_config.layer_norm_eps = 0.000001"],
  [withTower({ interpolate_mode: "bicubic" }), 'vision_config.interpolate_mode = "bicubic"'],
  [withTower({ add_patchemb_bias: false }), "vision_config.add_patchemb_bias = false"],
  [withTower({ cat_extra_token: 0 }), "vision_config.cat_extra_token = 0"],
  [withTower({ temporal_patch_size: 2 }), "vision_config.temporal_patch_size = 2"],
  [withTower({ model_type: "siglip_vision_model" }), 'vision_config.model_type = "siglip_vision_model"'],
];

testRefusals(
  refusals.map(([config, field]): RefusedConfiguration => [config, `config.json: ${field} is not supported`]),
);
