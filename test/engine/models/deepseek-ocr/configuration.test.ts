/** Configurations of DeepSeek-OCR 1 and 2, as DeepSeek published them and as transformers has the second. */
import { expect, test } from "vitest";

import {
  parseFirstConfig,
  parseNativeConfig,
  parseSecondConfig,
} from "../../../../engine/models/deepseek-ocr/config.ts";
import { countParameters } from "../counted-parameters.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const decoder = {
  bos_token_id: 0,
  eos_token_id: 1,
  first_k_dense_replace: 1,
  hidden_size: 1280,
  intermediate_size: 6848,
  kv_lora_rank: null,
  lm_head: true,
  max_position_embeddings: 8192,
  moe_intermediate_size: 896,
  n_group: 1,
  n_routed_experts: 64,
  n_shared_experts: 2,
  num_attention_heads: 10,
  num_experts_per_tok: 6,
  num_hidden_layers: 12,
  num_key_value_heads: 10,
  q_lora_rank: null,
  qk_nope_head_dim: 0,
  qk_rope_head_dim: 0,
  rm_head: false,
  topk_group: 1,
  topk_method: "greedy",
  use_mla: false,
  v_head_dim: 0,
  vocab_size: 129280,
};
const sam = {
  downsample_channels: [512, 1024],
  global_attn_indexes: [2, 5, 8, 11],
  heads: 12,
  layers: 12,
  width: 768,
};
const first = {
  architectures: ["DeepseekOCRForCausalLM"],
  candidate_resolutions: [[1024, 1024]],
  global_view_pos: "head",
  language_config: { architectures: ["DeepseekV2ForCausalLM"], torch_dtype: "bfloat16", ...decoder },
  model_type: "deepseek_vl_v2",
  projector_config: { input_dim: 2048, model_type: "mlp_projector", n_embed: 1280, projector_type: "linear" },
  tile_tag: "2D",
  torch_dtype: "bfloat16",
  vision_config: {
    image_size: 1024,
    mlp_ratio: 3.7362,
    model_name: "deeplip_b_l",
    model_type: "vision",
    width: {
      "clip-l-14-224": { heads: 16, image_size: 224, layers: 24, patch_size: 14, width: 1024 },
      sam_vit_b: sam,
    },
  },
  ...decoder,
};
const second = {
  ...first,
  architectures: ["DeepseekOCR2ForCausalLM"],
  projector_config: { ...first.projector_config, input_dim: 896 },
  vision_config: {
    ...first.vision_config,
    model_name: "deepencoderv2",
    width: { "qwen2-0-5b": { dim: 896 }, sam_vit_b: sam },
  },
};
const { kv_lora_rank: _kv, q_lora_rank: _q, first_k_dense_replace: _dense, ...text } = decoder;
const native = {
  architectures: ["DeepseekOcr2ForConditionalGeneration"],
  model_type: "deepseek_ocr2",
  text_config: {
    ...text,
    mlp_layer_types: ["dense", ...Array.from({ length: 11 }, () => "sparse")],
    model_type: "deepseek_ocr2_text",
    rope_parameters: { rope_theta: 10000, rope_type: "default" },
  },
  vision_config: {
    encoder_config: {
      hidden_size: 896,
      intermediate_size: 4864,
      num_attention_heads: 14,
      num_hidden_layers: 24,
      num_key_value_heads: 2,
      rope_parameters: { rope_theta: 1_000_000, rope_type: "default" },
    },
    sam_config: {},
  },
};

test("DeepSeek-OCR 1 has the tensors of its file but for CLIP's own embedding of patches", () => {
  // model.vision_model.embeddings.patch_embedding.weight.
  const numUnused = 1024 * 3 * 14 * 14;
  expect(countParameters(first)).toBe(3_336_106_240 - numUnused);
  expect(parseFirstConfig(first)).toMatchObject({
    text: {
      headDim: 128,
      numKvHeads: 10,
      rope: { theta: 10000 },
      experts: { numExperts: 64, sharedIntermediateSize: 1792 },
    },
    sam: { patchSize: 16, windowSize: 14, neckChannels: 256, intermediateSize: 3072, downsampleChannels: [512, 1024] },
    imageTokenId: 128815,
    images: { tile: 640, whole: 1024, tileFeatures: 10, wholeFeatures: 16, endsLines: true },
  });
});

test("both forms of DeepSeek-OCR 2 are one model, with as many parameters as in transformers", () => {
  for (const config of [second, native]) expect(countParameters(config)).toBe(3_389_119_360);
  const [published, saved] = [parseSecondConfig(second), parseNativeConfig(native)];
  expect({ ...published, text: null }).toEqual({ ...saved, text: null });
  expect(published.text).toEqual(saved.text);
  expect(published).toMatchObject({
    encoder: { kind: "queries", layers: { headDim: 64, numKvHeads: 2, hasQkvBias: true, rope: { theta: 1e6 } } },
    images: { tile: 768, whole: 1024, tileFeatures: 12, wholeFeatures: 16, endsLines: false },
  });
});

test("the decoder's fields may be at the top level only", () => {
  const { language_config: _, ...rest } = second;
  expect(parseSecondConfig(rest)).toEqual(parseSecondConfig(second));
});

const withDecoder = (fields: object) => ({ ...first, language_config: { ...first.language_config, ...fields } });
const withSam = (fields: object) => ({ ...native, vision_config: { ...native.vision_config, sam_config: fields } });
const withEncoder = (fields: object) => ({
  ...native,
  vision_config: { ...native.vision_config, encoder_config: { ...native.vision_config.encoder_config, ...fields } },
});

const refusals: readonly (readonly [config: object, field: string])[] = [
  [withDecoder({ use_mla: true }), "language_config.use_mla = true"],
  [withDecoder({ topk_method: "group_limited_greedy" }), 'language_config.topk_method = "group_limited_greedy"'],
  [withDecoder({ norm_topk_prob: true }), "language_config.norm_topk_prob = true"],
  [withDecoder({ num_experts_per_tok: 65 }), "language_config.num_experts_per_tok = 65"],
  [withDecoder({ mlp_layer_types: ["dense"] }), 'language_config.mlp_layer_types = ["dense"]'],
  [withDecoder({ head_dim: 64 }), "language_config.head_dim = 64"],
  [{ ...first, tile_tag: "1D" }, 'tile_tag = "1D"'],
  [{ ...first, global_view_pos: "tail" }, 'global_view_pos = "tail"'],
  [
    { ...first, projector_config: { ...first.projector_config, projector_type: "mlp_gelu" } },
    'projector_config.projector_type = "mlp_gelu"',
  ],
  [{ ...first, projector_config: { ...first.projector_config, input_dim: 1024 } }, "projector_config.input_dim = 1024"],
  [{ ...second, projector_config: { ...second.projector_config, n_embed: 1024 } }, "projector_config.n_embed = 1024"],
  [{ ...native, quantization_config: {} }, "quantization_config = {}"],
  [withSam({ use_rel_pos: false }), "vision_config.sam_config.use_rel_pos = false"],
  [withSam({ hidden_act: "mish" }), 'vision_config.sam_config.hidden_act = "mish"'],
  [withSam({ image_size: 1000 }), "vision_config.sam_config.patch_size = 16"],
  [withEncoder({ hidden_size: 448 }), "vision_config.encoder_config.hidden_size = 448"],
  [withEncoder({ use_sliding_window: true, max_window_layers: 0 }), "vision_config.encoder_config.use_sliding_window"],
];

testRefusals(refusals.map(([config, field]): RefusedConfiguration => [config, `config.json: ${field}`]));
