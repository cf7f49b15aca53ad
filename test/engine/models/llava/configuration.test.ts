/** Configurations of LLaVA, SmolVLM and Fuyu. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

import { parseFuyuConfig } from "../../../../engine/models/fuyu/config.ts";
import { parseIdefics3Config, unevenSides } from "../../../../engine/models/idefics3/config.ts";
import { parseLlavaConfig } from "../../../../engine/models/llava/config.ts";
import { goldensFolder } from "../../../support/checkpoints/goldens.ts";
import { testRefusals } from "../refused-configurations.ts";

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

testRefusals([
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
]);

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

test("tiles are rejected if transformers does not place their patches evenly", () => {
  const recorded = JSON.parse(readFileSync(join(goldensFolder, "smolvlm/uneven_sides.json"), "utf8")) as number[];
  expect(unevenSides).toEqual(recorded);
});
