import { expect, test } from "vitest";

import { parseLfm3VlConfig } from "../../../../engine/models/lfm3-vl/config.ts";
import { testRefusals } from "../refused-configurations.ts";

const lfm3Vl = { architectures: ["Lfm3VlForConditionalGeneration"] };
const vision = (fields: object) => ({ ...lfm3Vl, vision_config: fields });

test("missing fields have transformers' defaults", () => {
  expect(parseLfm3VlConfig(lfm3Vl)).toMatchObject({
    text: { vocabSize: 128_000, hiddenSize: 2048, tieWordEmbeddings: true },
    vision: {
      embedDim: 1024,
      numLayers: 14,
      numHeads: 16,
      numKvHeads: 8,
      intermediateSize: 2560,
      patchSize: 16,
      temporalPatchSize: 2,
      mergeSize: 2,
      ropeTheta: 1_000_000,
      kernelSide: 3,
      epsilon: 1e-5,
      projector: { width: 4096, activation: "gelu", hasBias: true },
    },
    imageTokenId: 125_030,
  });
});

test("every second layer of the tower attends, behind the first two", () => {
  const { layerTypes } = parseLfm3VlConfig(vision({ num_hidden_layers: 6 })).vision;
  expect(layerTypes).toEqual(["conv", "conv", "full_attention", "conv", "full_attention", "conv"]);
});

testRefusals([
  [{ ...lfm3Vl, model_type: "lfm2_vl" }, 'config.json: model_type = "lfm2_vl" is not supported'],
  [vision({ model_type: "siglip2" }), 'vision_config.model_type = "siglip2" is not supported'],
  [vision({ in_channels: 4 }), "vision_config.in_channels = 4 is not supported"],
  [vision({ conv_kernel_size: 4 }), "conv_kernel_size = 4 is not supported: an even kernel would change the size"],
  [vision({ num_key_value_heads: 5 }), "vision_config.num_key_value_heads = 5 is not supported"],
  [vision({ layer_types: ["conv"] }), "is not supported: there are 14 layers"],
  [
    vision({ num_hidden_layers: 1, layer_types: ["sliding_attention"] }),
    "is not supported: supported are conv and full_attention",
  ],
  [vision({ num_attention_heads: 24 }), "hidden_size 1024 does not divide into heads"],
  [vision({ rope_parameters: { rope_type: "default" } }), 'rope_type = "default" is not supported'],
  [{ ...lfm3Vl, text_config: { model_type: "lfm2" } }, 'text_config.model_type = "lfm2" is not supported'],
]);
