/** Configurations of Qwen2-VL and its successors. */
import { expect, test } from "vitest";

import { parseQwen25VlConfig } from "../../../../engine/models/qwen2-5-vl/config.ts";
import { parseQwen2VlConfig } from "../../../../engine/models/qwen2-vl/config.ts";
import { errorOf, testRefusals } from "../refused-configurations.ts";

const qwen2Vl = {
  architectures: ["Qwen2VLForConditionalGeneration"],
  hidden_size: 64,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  rope_scaling: { type: "mrope", mrope_section: [2, 3, 3] },
  vision_config: { hidden_size: 64 },
};

const qwen3VlText = {
  hidden_size: 64,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 24,
  num_hidden_layers: 3,
  rope_scaling: { mrope_interleaved: true, mrope_section: [6, 3, 3], rope_type: "default" },
};
const qwen3VlVision = { depth: 3, out_hidden_size: 64, deepstack_visual_indexes: [0, 2] };
const qwen3Vl = {
  architectures: ["Qwen3VLForConditionalGeneration"],
  text_config: qwen3VlText,
  vision_config: qwen3VlVision,
};
const qwen35 = { architectures: ["Qwen3_5ForCausalLM"], model_type: "qwen3_5_text", num_hidden_layers: 4 };

testRefusals([
  [
    { ...qwen3Vl, text_config: { ...qwen3VlText, use_sliding_window: true } },
    "config.json: text_config.use_sliding_window = true is not supported",
  ],
  [
    { ...qwen3Vl, text_config: { ...qwen3VlText, num_experts: 8 } },
    "config.json: text_config.num_experts = 8 is not supported",
  ],
  [
    {
      ...qwen3Vl,
      text_config: { ...qwen3VlText, rope_scaling: { mrope_interleaved: false, mrope_section: [6, 3, 3] } },
    },
    "config.json: text_config.rope_scaling.mrope_interleaved = false is not supported",
  ],
  [
    { ...qwen3Vl, vision_config: { ...qwen3VlVision, deepstack_visual_indexes: [0, 1, 2] } },
    "config.json: vision_config.deepstack_visual_indexes = [0,1,2] is not supported: the decoder has 3 layers",
  ],
  [
    { ...qwen3Vl, vision_config: { ...qwen3VlVision, deepstack_visual_indexes: [2, 0] } },
    "config.json: vision_config.deepstack_visual_indexes = [2,0] is not supported: expected ascending layers of the 3",
  ],
  [
    { ...qwen3Vl, vision_config: { ...qwen3VlVision, num_position_embeddings: 35 } },
    "config.json: vision_config.num_position_embeddings = 35 is not supported: it must be a square",
  ],
  [
    { ...qwen3Vl, vision_config: { ...qwen3VlVision, out_hidden_size: 32 } },
    "config.json: vision_config.out_hidden_size = 32 is not supported: the decoder's is 64",
  ],
  [
    {
      ...qwen3Vl,
      architectures: ["Qwen3VLMoeForConditionalGeneration"],
      text_config: { ...qwen3VlText, num_experts: 8, norm_topk_prob: false },
    },
    "config.json: text_config.norm_topk_prob = false is not supported",
  ],
  [{ ...qwen35, num_experts: 128 }, "config.json: num_experts = 128 is not supported"],
  [
    { ...qwen35, architectures: ["Qwen3_5MoeForCausalLM"], num_experts: 8 },
    'config.json: model_type = "qwen3_5_text" is not supported',
  ],
  [
    { architectures: ["Qwen3_5MoeForConditionalGeneration"] },
    "config.json: text_config.num_experts = null is not supported: it is required",
  ],
  [
    {
      architectures: ["Qwen3_5ForConditionalGeneration"],
      vision_config: { model_type: "qwen3_5", out_hidden_size: 4096, deepstack_visual_indexes: [8] },
    },
    "config.json: vision_config.deepstack_visual_indexes = [8] is not supported: only the features of the last layer are used",
  ],
  [
    { architectures: ["Qwen3_5ForConditionalGeneration"], vision_config: { model_type: "qwen3_vl" } },
    'config.json: vision_config.model_type = "qwen3_vl" is not supported',
  ],
  [
    { architectures: ["Qwen3_5ForConditionalGeneration"], text_config: { num_experts: 256 } },
    "config.json: text_config.num_experts = 256 is not supported",
  ],
  [{ ...qwen35, attn_output_gate: false }, "config.json: attn_output_gate = false is not supported"],
  [{ ...qwen35, hidden_act: "gelu" }, 'config.json: hidden_act = "gelu" is not supported'],
  [{ ...qwen35, layer_types: ["linear_attention", "full_attention"] }, "is not supported: there are 4 layers"],
  [
    { ...qwen35, layer_types: Array.from({ length: 4 }, () => "sliding_attention") },
    "is not supported: supported are linear_attention and full_attention",
  ],
  [
    { ...qwen35, full_attention_interval: 8 },
    'config.json: layer_types = "(every 8th full)" is not supported: no layer has full_attention',
  ],
  [
    { ...qwen35, linear_num_value_heads: 24 },
    "config.json: linear_num_value_heads = 24 is not supported: it is not a multiple of the 16 key heads",
  ],
  [
    { ...qwen35, rope_parameters: { mrope_section: [24, 20, 20] } },
    "config.json: rope_parameters.mrope_section = [24,20,20] is not supported: their sum must be half of the 64 rotated dimensions of a head",
  ],
  [
    { ...qwen35, rope_parameters: { mrope_interleaved: false } },
    "config.json: rope_parameters.mrope_interleaved = false is not supported",
  ],
  [
    { ...qwen35, partial_rotary_factor: 0.1 },
    "config.json: rope_parameters.partial_rotary_factor = 0.1 is not supported: 25 of 256 dimensions is not a multiple of 8",
  ],
  [
    { ...qwen2Vl, rope_scaling: { type: "mrope", mrope_section: [2, 3, 4] } },
    "config.json: mrope_section = [2,3,4] is not supported: their sum must be half of the head size, 16",
  ],
  [
    { ...qwen2Vl, rope_scaling: { type: "longrope", mrope_section: [2, 3, 3] } },
    'config.json: rope_scaling.rope_type = "longrope" is not supported',
  ],
  [{ ...qwen2Vl, vision_config: { hidden_size: 32 } }, "config.json: vision_config.hidden_size = 32 is not supported"],
  [
    { ...qwen2Vl, vision_config: { hidden_size: 64, model_type: "qwen2_5_vl" } },
    'config.json: vision_config.model_type = "qwen2_5_vl" is not supported',
  ],
]);

test("the hub's flat configuration of Qwen2-VL 2B is parsed", () => {
  const config = parseQwen2VlConfig({
    architectures: ["Qwen2VLForConditionalGeneration"],
    attention_dropout: 0.0,
    hidden_act: "silu",
    hidden_size: 1536,
    image_token_id: 151655,
    intermediate_size: 8960,
    max_position_embeddings: 32768,
    max_window_layers: 28,
    model_type: "qwen2_vl",
    num_attention_heads: 12,
    num_hidden_layers: 28,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_scaling: { type: "mrope", mrope_section: [16, 24, 24] },
    rope_theta: 1000000.0,
    sliding_window: 32768,
    tie_word_embeddings: true,
    use_sliding_window: false,
    vision_config: {
      depth: 32,
      embed_dim: 1280,
      hidden_size: 1536,
      in_chans: 3,
      mlp_ratio: 4,
      model_type: "qwen2_vl",
      num_heads: 16,
      patch_size: 14,
      spatial_merge_size: 2,
      spatial_patch_size: 14,
      temporal_patch_size: 2,
    },
    vocab_size: 151936,
  });
  expect(config).toMatchObject({
    imageTokenId: 151655,
    rotarySections: [16, 24, 24],
    text: { hasQkvBias: true, tieWordEmbeddings: true, headDim: 128, rope: { theta: 1e6, scaling: { kind: "none" } } },
    vision: { embedDim: 1280, intermediateSize: 5120, activation: "quick_gelu", ropeTheta: 10000 },
  });
});

const qwen25Vl = {
  architectures: ["Qwen2_5_VLForConditionalGeneration"],
  hidden_size: 2048,
  num_attention_heads: 16,
  num_key_value_heads: 2,
  rope_scaling: { type: "mrope", mrope_section: [16, 24, 24] },
  vision_config: {
    depth: 32,
    fullatt_block_indexes: [7, 15, 23, 31],
    hidden_act: "silu",
    hidden_size: 1280,
    in_chans: 3,
    intermediate_size: 3420,
    num_heads: 16,
    out_hidden_size: 2048,
    patch_size: 14,
    spatial_merge_size: 2,
    temporal_patch_size: 2,
    tokens_per_second: 2,
    window_size: 112,
  },
};

test("the hub's configuration of Qwen2.5-VL 3B has windows of 4 x 4 squares", () => {
  expect(parseQwen25VlConfig(qwen25Vl)).toMatchObject({
    rotarySections: [16, 24, 24],
    vision: { embedDim: 1280, windowSide: 4, fullAttentionLayers: new Set([7, 15, 23, 31]), ropeTheta: 10000 },
  });
});

test.for([
  ["out_hidden_size", 1024, "the decoder's is 2048"],
  ["window_size", 27, "a window has at least one square of 28 pixels"],
  ["num_heads", 3, "hidden_size 1280 does not divide into heads whose size is a multiple of 4"],
  ["hidden_act", "gelu", ""],
] as const)("Qwen2.5-VL with vision_config.%s %s is rejected by name", ([field, value, reason]) => {
  const config = { ...qwen25Vl, vision_config: { ...qwen25Vl.vision_config, [field]: value } };
  const { code, message } = errorOf(() => parseQwen25VlConfig(config));
  expect(code).toBe("unsupported_model");
  expect(message).toContain(`config.json: vision_config.${field} = ${JSON.stringify(value)} is not supported`);
  expect(message).toContain(reason);
});
