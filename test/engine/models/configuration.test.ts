import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { parseFuyuConfig } from "../../../engine/models/fuyu/config.ts";
import { parseIdefics3Config, unevenSides } from "../../../engine/models/idefics3/config.ts";
import { parseDecoderConfig } from "../../../engine/models/llama/config.ts";
import { parseLlavaConfig } from "../../../engine/models/llava/config.ts";
import {
  parseLightOnOcrConfig,
  parseMistral3Config,
  parsePixtralConfig,
} from "../../../engine/models/pixtral/config.ts";
import { parseQwen25VlConfig } from "../../../engine/models/qwen2-5-vl/config.ts";
import { parseQwen2VlConfig } from "../../../engine/models/qwen2-vl/config.ts";
import { findModelDefinition } from "../../../engine/models/registry.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";

const llama = { architectures: ["LlamaForCausalLM"], hidden_size: 64, num_attention_heads: 4, num_hidden_layers: 2 };
const mistral = { ...llama, architectures: ["MistralForCausalLM"], num_key_value_heads: 4 };
const qwen2 = { ...llama, architectures: ["Qwen2ForCausalLM"], num_key_value_heads: 4 };
const qwen3 = { ...qwen2, architectures: ["Qwen3ForCausalLM"] };
const qwen35 = { architectures: ["Qwen3_5ForCausalLM"], model_type: "qwen3_5_text", num_hidden_layers: 4 };
const llava = {
  architectures: ["LlavaForConditionalGeneration"],
  text_config: { hidden_size: 64, num_attention_heads: 4 },
  vision_config: { model_type: "clip_vision_model", num_hidden_layers: 3, image_size: 32, patch_size: 8 },
};

const smolVlm = {
  architectures: ["SmolVLMForConditionalGeneration"],
  text_config: { hidden_size: 64, num_attention_heads: 4 },
  vision_config: { image_size: 32, patch_size: 8 },
};

const fuyu = {
  architectures: ["FuyuForCausalLM"],
  text_config: { model_type: "persimmon", hidden_size: 64, num_attention_heads: 4 },
};

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

const gemma3 = { architectures: ["Gemma3ForCausalLM"], hidden_size: 64 };

const refusals: readonly (readonly [config: Readonly<Record<string, unknown>>, message: string])[] = [
  [{ architectures: ["GemmaForCausalLM"] }, "The architecture GemmaForCausalLM is not supported"],
  [{ ...llama, hidden_act: "gelu" }, 'config.json: hidden_act = "gelu" is not supported'],
  [{ ...llama, quantization_config: { bits: 4 } }, 'config.json: quantization_config = {"bits":4} is not supported'],
  [{ ...llama, partial_rotary_factor: 0.5 }, "config.json: partial_rotary_factor = 0.5 is not supported"],
  [{ ...llama, final_logit_softcapping: 30 }, "config.json: final_logit_softcapping = 30 is not supported"],
  [{ ...llama, num_key_value_heads: 3 }, "config.json: num_key_value_heads = 3 is not supported"],
  [{ ...llama, head_dim: 20 }, "config.json: head_dim = 20 is not supported"],
  [{ ...mistral, attention_bias: true }, "config.json: attention_bias = true is not supported"],
  [{ ...qwen2, layer_types: ["full_attention"] }, 'config.json: layer_types = ["full_attention"] is not supported'],
  [{ ...qwen2, layer_types: ["linear", "linear"] }, 'config.json: layer_types = "linear" is not supported'],
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
  [{ ...gemma3, attn_logit_softcapping: 50 }, "config.json: attn_logit_softcapping = 50 is not supported"],
  [
    { ...gemma3, use_bidirectional_attention: true },
    "config.json: use_bidirectional_attention = true is not supported",
  ],
  [{ ...gemma3, attention_bias: true }, "config.json: attention_bias = true is not supported"],
  [{ ...gemma3, layer_types: ["full_attention"] }, 'config.json: layer_types = ["full_attention"] is not supported'],
  [
    { ...gemma3, num_hidden_layers: 1, layer_types: ["chunked_attention"] },
    'config.json: layer_types = "chunked_attention" is not supported',
  ],
  [
    { architectures: ["Gemma3ForConditionalGeneration"], text_config: gemma3, mm_tokens_per_image: 100 },
    "config.json: mm_tokens_per_image = 100 is not supported: expected the square of a number by which 14",
  ],
  [
    { architectures: ["Gemma3ForConditionalGeneration"], text_config: { model_type: "gemma2" } },
    'config.json: text_config.model_type = "gemma2" is not supported',
  ],
  [{ ...qwen35, num_experts: 128 }, "config.json: num_experts = 128 is not supported"],
  [
    { ...qwen35, architectures: ["Qwen3_5MoeForConditionalGeneration"] },
    "The architecture Qwen3_5MoeForConditionalGeneration is not supported",
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
  [{ ...qwen3, head_dim: 20 }, "config.json: head_dim = 20 is not supported"],
  [{ ...qwen3, mlp_bias: true }, "config.json: mlp_bias = true is not supported"],
  [{ ...qwen3, num_experts: 128 }, "config.json: num_experts = 128 is not supported"],
  [{ ...qwen3, architectures: ["Qwen3MoeForCausalLM"] }, "The architecture Qwen3MoeForCausalLM is not supported"],
  [
    { ...qwen3, use_sliding_window: true, layer_types: ["chunked_attention", "full_attention"] },
    'config.json: layer_types = "chunked_attention" is not supported',
  ],
  [
    { ...qwen3, layer_types: ["full_attention", "sliding_attention"] },
    'config.json: layer_types = "sliding_attention" is not supported',
  ],
  [
    { ...llava, vision_feature_select_strategy: "cls" },
    'config.json: vision_feature_select_strategy = "cls" is not supported',
  ],
  [{ ...llava, vision_feature_layer: -5 }, "config.json: vision_feature_layer = -5 is not supported"],
  [{ ...llava, projector_hidden_act: "mish" }, 'config.json: projector_hidden_act = "mish" is not supported'],
  [
    { ...llava, text_config: { model_type: "gemma" } },
    'config.json: text_config.model_type = "gemma" is not supported',
  ],
  [
    { ...llava, text_config: { ...llava.text_config, hidden_act: "relu" } },
    'config.json: text_config.hidden_act = "relu" is not supported',
  ],
  [
    { ...llava, vision_config: { model_type: "dinov2" } },
    'config.json: vision_config.model_type = "dinov2" is not supported',
  ],
  [
    { ...llava, vision_config: { ...llava.vision_config, patch_size: 7 } },
    "config.json: vision_config.patch_size = 7 is not supported",
  ],
  [{ ...smolVlm, scale_factor: 3 }, "config.json: scale_factor = 3 is not supported: 4 patches per side"],
  [
    { ...smolVlm, vision_config: { image_size: 100, patch_size: 4 } },
    "config.json: vision_config.patch_size = 4 is not supported: positions of 25 patches per side",
  ],
  [
    { ...smolVlm, vision_config: { model_type: "siglip2_vision_model" } },
    'config.json: vision_config.model_type = "siglip2_vision_model" is not supported',
  ],
  [{ ...fuyu, text_config: { model_type: "llama" } }, 'config.json: text_config.model_type = "llama" is not supported'],
  [
    { ...fuyu, text_config: { ...fuyu.text_config, partial_rotary_factor: 0.3 } },
    "config.json: text_config.partial_rotary_factor = 0.3 is not supported: 4 of 16 dimensions",
  ],
  [
    { ...fuyu, text_config: { ...fuyu.text_config, hidden_act: "mish" } },
    'config.json: text_config.hidden_act = "mish" is not supported',
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
];

test.for(refusals.map(([config, message]) => ({ config, message })))("rejected: $message", ({ config, message }) => {
  const error = errorOf(() => findModelDefinition(config).configure(config));
  expect(error.code).toBe("unsupported_model");
  expect(error.message).toContain(message);
});

test.for([
  { config: { ...llama, hidden_size: "64" }, message: 'config.json: hidden_size is "64"; expected a number.' },
  { config: { ...llama, num_hidden_layers: 0 }, message: "config.json: num_hidden_layers is 0; expected at least 1." },
  {
    config: { ...llava, text_config: { vocab_size: 1.5 } },
    message: "config.json: text_config.vocab_size is 1.5; expected an integer.",
  },
  {
    config: { architectures: [] },
    message:
      'config.json: architectures is a list of 0 elements; expected a list with the name of the model\'s class, such as ["LlamaForCausalLM"].',
  },
  { config: "text", message: 'config.json: it is "text"; expected an object.' },
])("an invalid checkpoint: $message", ({ config, message }) => {
  const error = errorOf(() => findModelDefinition(config).configure(config));
  expect(error.code).toBe("invalid_checkpoint");
  expect(error.message).toContain(message);
});

test("fields missing in config.json have transformers' defaults", () => {
  expect(parseDecoderConfig({}, "text_config", "llama")).toMatchObject({
    vocabSize: 32000,
    hiddenSize: 4096,
    intermediateSize: 11008,
    numLayers: 32,
    numHeads: 32,
    numKvHeads: 32,
    headDim: 128,
    maxPositionEmbeddings: 2048,
    rmsNormEpsilon: 1e-6,
    tieWordEmbeddings: false,
    rope: { theta: 10000, scaling: { kind: "none" } },
    hasQkvBias: false,
  });
  expect(parseDecoderConfig({}, "", "mistral")).toMatchObject({ numKvHeads: 8, intermediateSize: 14336 });
  expect(parseDecoderConfig({}, "", "mistral").slidingWindows[0]).toBe(4096);
  expect(parseDecoderConfig({}, "", "qwen2")).toMatchObject({
    vocabSize: 151936,
    hasQkvBias: true,
    hasOutputBias: false,
  });
  expect(parseDecoderConfig({}, "", "qwen3")).toMatchObject({
    vocabSize: 151936,
    headDim: 128,
    maxPositionEmbeddings: 32768,
    hasQkvBias: false,
    normalisesQueryAndKey: true,
  });
});

test("Qwen2 has biases on query, key and value, whatever attention_bias says", () => {
  for (const attention_bias of [true, false]) {
    expect(parseDecoderConfig({ ...qwen2, attention_bias }, "", "qwen2")).toMatchObject({
      hasQkvBias: true,
      hasOutputBias: false,
    });
  }
});

test("Qwen3 has a head size of its own, and biases only if attention_bias is set", () => {
  expect(parseDecoderConfig({ ...qwen3, head_dim: 24 }, "", "qwen3").headDim).toBe(24);
  expect(parseDecoderConfig(qwen3, "", "qwen3").headDim).toBe(128);
  const biased = parseDecoderConfig({ ...qwen3, attention_bias: true }, "", "qwen3");
  expect(biased).toMatchObject({ hasQkvBias: true, hasOutputBias: true, hasMlpBias: false });
});

test("the hub's configuration of LLaVA 1.5 is parsed", () => {
  const config = parseLlavaConfig({
    ignore_index: -100,
    image_token_index: 32000,
    projector_hidden_act: "gelu",
    text_config: {
      _name_or_path: "lmsys/vicuna-7b-v1.5",
      max_position_embeddings: 4096,
      model_type: "llama",
      rms_norm_eps: 1e-5,
      vocab_size: 32064,
    },
    vision_config: {
      hidden_size: 1024,
      image_size: 336,
      intermediate_size: 4096,
      model_type: "clip_vision_model",
      num_attention_heads: 16,
      num_hidden_layers: 24,
      patch_size: 14,
      projection_dim: 768,
      vocab_size: 32000,
    },
    vision_feature_layer: -2,
    vision_feature_select_strategy: "default",
  });
  expect(config).toMatchObject({
    imageTokenId: 32000,
    featureLayers: [23],
    keepsFirstToken: false,
    numImageTokens: 576,
    projectorHasBias: true,
    text: { vocabSize: 32064, hiddenSize: 4096, numLayers: 32, rmsNormEpsilon: 1e-5, maxPositionEmbeddings: 4096 },
    vision: { activation: "quick_gelu", layerNormEpsilon: 1e-5 },
  });
});

test.for([
  [-2, [2]],
  [-1, [3]],
  [0, [0]],
  [
    [-3, 2],
    [1, 2],
  ],
] as const)(
  "vision_feature_layer %o selects the hidden states %o of a tower with three layers",
  ([setting, layers]) => {
    expect(parseLlavaConfig({ ...llava, vision_feature_layer: setting }).featureLayers).toEqual(layers);
  },
);

test("an image token id is read in both spellings, and either place ties the embeddings", () => {
  expect(parseLlavaConfig({ ...llava, image_token_index: 7 }).imageTokenId).toBe(7);
  expect(parseLlavaConfig({ ...llava, image_token_id: 8 }).imageTokenId).toBe(8);
  expect(parseLlavaConfig({ ...llava, tie_word_embeddings: true }).text.tieWordEmbeddings).toBe(true);
  const inText = { ...llava, text_config: { ...llava.text_config, tie_word_embeddings: true } };
  expect(parseLlavaConfig(inText).text.tieWordEmbeddings).toBe(true);
});

test("the hub's configuration of SmolVLM 256M is parsed", () => {
  const config = parseIdefics3Config({
    architectures: ["Idefics3ForConditionalGeneration"],
    image_token_id: 49190,
    model_type: "idefics3",
    scale_factor: 4,
    text_config: {
      architectures: ["VLlama3ForCausalLM"],
      head_dim: 64,
      hidden_size: 576,
      intermediate_size: 1536,
      is_llama_config: true,
      max_position_embeddings: 8192,
      model_type: "llama",
      num_attention_heads: 9,
      num_hidden_layers: 30,
      num_key_value_heads: 3,
      pixel_shuffle_factor: 4,
      qk_layer_norms: false,
      rms_norm_eps: 1e-5,
      rope_interleaved: false,
      rope_theta: 100000,
      use_resampler: false,
      vocab_size: 49280,
    },
    tie_word_embeddings: false,
    vision_config: {
      hidden_size: 768,
      image_size: 512,
      max_image_size: { longest_edge: 512 },
      model_type: "idefics3",
      num_attention_heads: 12,
      patch_size: 16,
      size: { longest_edge: 2048 },
      tie_word_embeddings: false,
      use_base_siglip: false,
    },
  });
  expect(config).toMatchObject({
    imageTokenId: 49190,
    numImageTokens: 64,
    text: { numHeads: 9, numKvHeads: 3, rope: { theta: 100000 }, tieWordEmbeddings: false },
    vision: { hiddenSize: 768, intermediateSize: 3072, numLayers: 12, activation: "gelu_pytorch_tanh" },
  });
});

test("the hub's flat configuration of Fuyu 8B is parsed", () => {
  const config = parseFuyuConfig({
    architectures: ["FuyuForCausalLM"],
    hidden_act: "relu2",
    hidden_size: 4096,
    image_size: 300,
    intermediate_size: 16384,
    layer_norm_eps: 1e-5,
    max_position_embeddings: 16384,
    model_type: "fuyu",
    num_attention_heads: 64,
    num_channels: 3,
    num_hidden_layers: 36,
    patch_size: 30,
    qk_layernorm: true,
    rope_scaling: null,
    rope_theta: 25000.0,
    tie_word_embeddings: false,
    vocab_size: 262144,
  });
  expect(config).toMatchObject({
    imageTokenId: 71011,
    patchSize: 30,
    text: { headDim: 64, rotaryDim: 32, normalisesQueryAndKey: true, activation: "relu2", rope: { theta: 25000 } },
  });
});

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

const pixtral = {
  architectures: ["LlavaForConditionalGeneration"],
  image_token_index: 10,
  text_config: {
    hidden_size: 5120,
    head_dim: 128,
    intermediate_size: 14336,
    model_type: "mistral",
    num_hidden_layers: 40,
    rms_norm_eps: 1e-5,
    rope_theta: 1e9,
    sliding_window: null,
    vocab_size: 131072,
  },
  vision_config: {
    head_dim: 64,
    hidden_act: "silu",
    image_size: 1024,
    model_type: "pixtral",
    patch_size: 16,
    rope_theta: 10000,
  },
  vision_feature_layer: -1,
  vision_feature_select_strategy: "full",
};
const mistral3 = {
  architectures: ["Mistral3ForConditionalGeneration"],
  image_token_index: 10,
  text_config: { ...pixtral.text_config, intermediate_size: 32768 },
  vision_config: { ...pixtral.vision_config, image_size: 1540, patch_size: 14 },
};

// The first form of LightOnOCR-1B-1025. Later ones have model_type lighton_ocr and "Ocr" in the name of the class.
const lightOnOcr = {
  architectures: ["LightOnOCRForConditionalGeneration"],
  image_token_id: 151655,
  model_type: "mistral3",
  multimodal_projector_bias: false,
  projector_hidden_act: "gelu",
  spatial_merge_size: 2,
  text_config: {
    head_dim: 128,
    hidden_size: 1024,
    model_type: "qwen3",
    num_attention_heads: 16,
    num_key_value_heads: 8,
  },
  vision_config: { ...pixtral.vision_config, image_size: 1540, patch_size: 14 },
  vision_feature_layer: -1,
};
const ministral3 = {
  ...mistral3,
  text_config: {
    head_dim: 128,
    hidden_size: 3072,
    intermediate_size: 9216,
    model_type: "ministral3",
    num_hidden_layers: 26,
    rope_parameters: {
      beta_fast: 32,
      beta_slow: 1,
      factor: 16,
      llama_4_scaling_beta: 0.1,
      mscale: 1,
      mscale_all_dim: 1,
      original_max_position_embeddings: 16384,
      rope_theta: 1e6,
      rope_type: "yarn",
      type: "yarn",
    },
    sliding_window: null,
    tie_word_embeddings: true,
  },
};

test("the hub's configuration of Pixtral 12B leaves out most sizes of its tower", () => {
  const config = parsePixtralConfig(pixtral);
  expect(config).toMatchObject({
    text: { headDim: 128, numHeads: 32, numKvHeads: 8, rope: { theta: 1e9 } },
    vision: { embedDim: 1024, numLayers: 24, numHeads: 16, intermediateSize: 4096, patchSize: 16, mergeSize: 1 },
    imageTokenId: 10,
    projectorHasBias: true,
    featureLayers: [24],
    hasPatchMerger: false,
  });
  expect(findModelDefinition(pixtral).towerType).toBe("pixtral");
  expect(findModelDefinition(llava).towerType).toBeUndefined();
});

test("transformers 5 spells the tower's rotary embedding in another way", () => {
  const { rope_theta: _, ...rest } = pixtral.vision_config;
  const vision = { ...rest, rope_parameters: { rope_theta: 500, rope_type: "axial" } };
  expect(parsePixtralConfig({ ...pixtral, vision_config: vision }).vision.ropeTheta).toBe(500);
});

test("Mistral 3 merges squares of patches and has no biases in its projector", () => {
  expect(parseMistral3Config(mistral3)).toMatchObject({
    vision: { patchSize: 14, mergeSize: 2 },
    projectorHasBias: false,
    featureLayers: [24],
    hasPatchMerger: true,
  });
});

test("both forms of LightOnOCR are Pixtral's tower in rows of patches before Qwen3", () => {
  const config = parseLightOnOcrConfig(lightOnOcr);
  expect(config).toMatchObject({
    text: { headDim: 128, normalisesQueryAndKey: true, tieWordEmbeddings: true },
    vision: { embedDim: 1024, patchSize: 14, mergeSize: 2 },
    imageTokenId: 151655,
    projectorHasBias: false,
    featureLayers: [24],
    hasPatchMerger: true,
    patchOrder: "rows",
  });
  const renamed = { ...lightOnOcr, architectures: ["LightOnOcrForConditionalGeneration"], model_type: "lighton_ocr" };
  expect(parseLightOnOcrConfig(renamed)).toEqual(config);
  const images = [lightOnOcr, renamed].map((json) => findModelDefinition(json).images);
  expect(images[0]).toBe(images[1]);
});

test("transformers' first files of the tower call its rotary embedding default", () => {
  const vision = { ...pixtral.vision_config, rope_parameters: { rope_theta: 500, rope_type: "default" } };
  expect(parsePixtralConfig({ ...pixtral, vision_config: vision }).vision.ropeTheta).toBe(500);
});

test("the queries of Ministral 3 grow by the hub's configuration, and by transformers' default", () => {
  const { text } = parseMistral3Config(ministral3);
  expect(text).toMatchObject({
    numLayers: 26,
    numKvHeads: 8,
    rmsNormEpsilon: 1e-5,
    maxPositionEmbeddings: 262144,
    slidingWindows: Array.from({ length: 26 }, () => null),
    queryScaling: { beta: 0.1, interval: 16384 },
    rope: {
      theta: 1e6,
      scaling: { kind: "yarn", factor: 16, attentionFactor: 1, originalMaxPositionEmbeddings: 16384 },
    },
  });
  const { rope_parameters: _, ...others } = ministral3.text_config;
  expect(parseMistral3Config({ ...ministral3, text_config: others }).text).toEqual(text);
});

test.for([0, null])("queries do not grow with a llama_4_scaling_beta of %s", (beta) => {
  const rope = { ...ministral3.text_config.rope_parameters, llama_4_scaling_beta: beta };
  const config = { ...ministral3, text_config: { ...ministral3.text_config, rope_parameters: rope } };
  expect(parseMistral3Config(config).text.queryScaling).toBeNull();
});

test("Phi-3 has fused projections and a window in every layer", () => {
  const config = { num_hidden_layers: 2, sliding_window: 2047, rope_scaling: null };
  expect(parseDecoderConfig(config, "", "phi3")).toMatchObject({
    vocabSize: 32064,
    hiddenSize: 3072,
    numKvHeads: 32,
    headDim: 96,
    rmsNormEpsilon: 1e-5,
    fusesProjections: true,
    slidingWindows: [2047, 2047],
  });
});

test.for([
  [{ rope_scaling: { type: "longrope", long_factor: [1], short_factor: [1] } }, 'rope_scaling.type = "longrope"'],
  // transformers computes longrope for it.
  [{ rope_scaling: { type: "yarn", factor: 2 } }, 'rope_scaling.type = "yarn"'],
  [{ rope_parameters: { rope_type: "longrope" } }, 'rope_parameters.rope_type = "longrope"'],
  [{ partial_rotary_factor: 0.75 }, "partial_rotary_factor = 0.75"],
  [{ attention_bias: true }, "attention_bias = true"],
] as const)("Phi-3 with %j is rejected by name", ([fields, field]) => {
  const { code, message } = errorOf(() => parseDecoderConfig(fields, "", "phi3"));
  expect(code).toBe("unsupported_model");
  expect(message).toContain(`config.json: ${field} is not supported`);
});

test("a growth of queries without its interval is rejected by name", () => {
  const rope = { rope_type: "yarn", factor: 2, llama_4_scaling_beta: 0.1 };
  const { code, message } = errorOf(() => parseDecoderConfig({ rope_parameters: rope }, "", "ministral3"));
  expect(code).toBe("unsupported_model");
  expect(message).toContain("rope_parameters.llama_4_scaling_beta = 0.1 is not supported: it needs original_max");
});

test.for([
  [{ ...pixtral, vision_feature_select_strategy: "default" }, 'vision_feature_select_strategy = "default"'],
  [{ ...pixtral, vision_feature_layer: 25 }, "vision_feature_layer = 25"],
  [{ ...pixtral, projector_hidden_act: "mish" }, 'projector_hidden_act = "mish"'],
  [{ ...pixtral, quantization_config: {} }, "quantization_config = {}"],
  [withTower(pixtral, { hidden_act: "mish" }), 'vision_config.hidden_act = "mish"'],
  [withTower(pixtral, { num_channels: 1 }), "vision_config.num_channels = 1"],
  [withTower(pixtral, { num_attention_heads: 3 }), "vision_config.num_attention_heads = 3"],
  [withTower(pixtral, { head_dim: 32 }), "vision_config.head_dim = 32"],
  [withTower(pixtral, { rope_parameters: { rope_type: "yarn" } }), 'vision_config.rope_parameters.rope_type = "yarn"'],
  [withTower(mistral3, { model_type: "siglip_vision_model" }), 'vision_config.model_type = "siglip_vision_model"'],
  [{ ...mistral3, vision_feature_layer: [-2, -1] }, "vision_feature_layer = [-2,-1]"],
  [{ ...mistral3, text_config: { model_type: "ministral" } }, 'text_config.model_type = "ministral"'],
  [{ ...lightOnOcr, projector_hidden_act: "relu" }, 'projector_hidden_act = "relu"'],
  [{ ...lightOnOcr, multimodal_projector_bias: true }, "multimodal_projector_bias = true"],
  [{ ...lightOnOcr, vision_feature_layer: -2 }, "vision_feature_layer = -2"],
  [
    withTower(lightOnOcr, { rope_parameters: { rope_type: "yarn" } }),
    'vision_config.rope_parameters.rope_type = "yarn"',
  ],
] as const)("a model with Pixtral's tower is rejected by name: %s", ([config, field]) => {
  const { code, message } = errorOf(() => findModelDefinition(config).configure(config));
  expect(code).toBe("unsupported_model");
  expect(message).toContain(`config.json: ${field} is not supported`);
});

function withTower(config: typeof pixtral | typeof mistral3 | typeof lightOnOcr, fields: object): object {
  return { ...config, vision_config: { ...config.vision_config, ...fields } };
}

test("tiles are rejected if transformers does not place their patches evenly", () => {
  const recorded = JSON.parse(readFileSync(join(goldensFolder, "smolvlm/uneven_sides.json"), "utf8")) as number[];
  expect(unevenSides).toEqual(recorded);
});

test.for(["qwen2", "qwen3"] as const)(
  "%s has windows in its upper layers only if use_sliding_window is set",
  (family) => {
    const sliding = { ...qwen2, sliding_window: 16, max_window_layers: 1 };
    expect(parseDecoderConfig(sliding, "", family).slidingWindows).toEqual([null, null]);
    expect(parseDecoderConfig({ ...sliding, use_sliding_window: true }, "", family).slidingWindows).toEqual([null, 16]);
  },
);

function errorOf(action: () => unknown): EngineError {
  try {
    action();
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}
