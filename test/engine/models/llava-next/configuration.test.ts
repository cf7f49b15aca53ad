import { expect, test } from "vitest";

import { parseLlavaNextConfig, parseLlavaOneVisionConfig } from "../../../../engine/models/llava-next/config.ts";
import { findModelDefinition } from "../../../support/engine/shipped-models.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const next = { architectures: ["LlavaNextForConditionalGeneration"], text_config: { model_type: "mistral" } };
const oneVision = { architectures: ["LlavaOnevisionForConditionalGeneration"] };
const siglip = { model_type: "siglip_vision_model", image_size: 384, patch_size: 14, num_hidden_layers: 26 };

test("the hub's configurations leave out most sizes", () => {
  expect(parseLlavaNextConfig(next)).toMatchObject({
    text: { numKvHeads: 8, vocabSize: 32000 },
    vision: { imageSize: 336, patchSize: 14 },
    imageTokenId: 32000,
    featureLayers: [23],
    numImageTokens: 576,
    anyres: { featuresPerSide: 24, mostTiles: null },
  });
  const config = parseLlavaOneVisionConfig(oneVision);
  expect(config).toMatchObject({
    text: { hasQkvBias: true, vocabSize: 151936 },
    vision: { hiddenSize: 1152, numLayers: 26, imageSize: 384, patchSize: 14 },
    imageTokenId: 151646,
    featureLayers: [26],
    keepsFirstToken: true,
    numImageTokens: 729,
    anyres: { featuresPerSide: 27, mostTiles: 9 },
  });
  expect(config.anyres.resolutions).toHaveLength(36);
});

const refusals: readonly (readonly [config: object, field: string])[] = [
  [{ ...next, vision_feature_select_strategy: "full" }, 'vision_feature_select_strategy = "full"'],
  [{ ...next, vision_config: siglip }, 'vision_feature_select_strategy = "default"'],
  [{ ...next, vision_feature_layer: 25 }, "vision_feature_layer = 25"],
  [{ ...next, quantization_config: {} }, "quantization_config = {}"],
  [{ ...next, text_config: { model_type: "mixtral" } }, 'text_config.model_type = "mixtral"'],
  [{ ...next, vision_config: { model_type: "dinov2" } }, 'vision_config.model_type = "dinov2"'],
  [{ ...oneVision, vision_aspect_ratio: "pad" }, 'vision_aspect_ratio = "pad"'],
  [{ ...oneVision, vision_aspect_ratio: "anyres_max_0" }, 'vision_aspect_ratio = "anyres_max_0"'],
];

testRefusals(
  refusals.map(([config, field]): RefusedConfiguration => [config, `config.json: ${field} is not supported`]),
);

test.for<[object, string]>([
  [{ ...next, image_grid_pinpoints: [] }, "image_grid_pinpoints"],
  [{ ...next, image_grid_pinpoints: [[336, 1e9]] }, "image_grid_pinpoints[0][1]"],
  [{ ...oneVision, vision_aspect_ratio: 9 }, "vision_aspect_ratio"],
])("%j is invalid", ([config, field]) => {
  expect(() => findModelDefinition(config).configure(config)).toThrow(
    expect.objectContaining({ code: "invalid_checkpoint", message: expect.stringContaining(`config.json: ${field}`) }),
  );
});
