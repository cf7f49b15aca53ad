/** Configurations of models with Pixtral's tower: Pixtral, Mistral 3, Ministral 3 and LightOnOCR. */
import { expect, test } from "vitest";

import {
  parseLightOnOcrConfig,
  parseMistral3Config,
  parsePixtralConfig,
} from "../../../../engine/models/pixtral/config.ts";
import { findModelDefinition } from "../../../support/engine/shipped-models.ts";
import { testRefusals } from "../refused-configurations.ts";

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
  expect(findModelDefinition({ architectures: ["LlavaForConditionalGeneration"] }).towerType).toBeUndefined();
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

testRefusals([
  [
    { ...pixtral, vision_feature_select_strategy: "default" },
    'config.json: vision_feature_select_strategy = "default" is not supported',
  ],
  [{ ...pixtral, vision_feature_layer: 25 }, "config.json: vision_feature_layer = 25 is not supported"],
  [{ ...pixtral, projector_hidden_act: "mish" }, 'config.json: projector_hidden_act = "mish" is not supported'],
  [{ ...pixtral, quantization_config: {} }, "config.json: quantization_config = {} is not supported"],
  [withTower(pixtral, { hidden_act: "mish" }), 'config.json: vision_config.hidden_act = "mish" is not supported'],
  [withTower(pixtral, { num_channels: 1 }), "config.json: vision_config.num_channels = 1 is not supported"],
  [
    withTower(pixtral, { num_attention_heads: 3 }),
    "config.json: vision_config.num_attention_heads = 3 is not supported",
  ],
  [withTower(pixtral, { head_dim: 32 }), "config.json: vision_config.head_dim = 32 is not supported"],
  [
    withTower(pixtral, { rope_parameters: { rope_type: "yarn" } }),
    'config.json: vision_config.rope_parameters.rope_type = "yarn" is not supported',
  ],
  [
    withTower(mistral3, { model_type: "siglip_vision_model" }),
    'config.json: vision_config.model_type = "siglip_vision_model" is not supported',
  ],
  [{ ...mistral3, vision_feature_layer: [-2, -1] }, "config.json: vision_feature_layer = [-2,-1] is not supported"],
  [
    { ...mistral3, text_config: { model_type: "ministral" } },
    'config.json: text_config.model_type = "ministral" is not supported',
  ],
  [{ ...lightOnOcr, projector_hidden_act: "relu" }, 'config.json: projector_hidden_act = "relu" is not supported'],
  [
    { ...lightOnOcr, multimodal_projector_bias: true },
    "config.json: multimodal_projector_bias = true is not supported",
  ],
  [{ ...lightOnOcr, vision_feature_layer: -2 }, "config.json: vision_feature_layer = -2 is not supported"],
  [
    withTower(lightOnOcr, { rope_parameters: { rope_type: "yarn" } }),
    'config.json: vision_config.rope_parameters.rope_type = "yarn" is not supported',
  ],
]);

function withTower(config: typeof pixtral | typeof mistral3 | typeof lightOnOcr, fields: object): object {
  return { ...config, vision_config: { ...config.vision_config, ...fields } };
}
