import { expect, test } from "vitest";

import { miniCpmOcr, miniCpmV46, miniCpmV47, parseMiniCpmVConfig } from "../../../../engine/models/minicpm-v/config.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const architectures = ["MiniCPMV4_6ForConditionalGeneration"];
const minimal = { architectures, image_token_id: 5 };

test("missing fields have transformers' defaults", () => {
  expect(parseMiniCpmVConfig(minimal, miniCpmV46)).toMatchObject({
    text: { hiddenSize: 4096, headDim: 256, tieWordEmbeddings: false },
    vision: { hiddenSize: 768, numLayers: 12, positionsPerSide: 14, windowMergerLayer: 7, mergeSize: 4 },
    imageTokenId: 5,
  });
});

test("MiniCPM-OCR merges no windows and ties its embeddings by default", () => {
  expect(parseMiniCpmVConfig(minimal, miniCpmOcr)).toMatchObject({
    text: { tieWordEmbeddings: true },
    vision: { windowMergerLayer: null, mergeSize: 2 },
  });
  const merged = { ...minimal, downsample_mode: "16x", tie_word_embeddings: false };
  expect(parseMiniCpmVConfig(merged, miniCpmOcr)).toMatchObject({
    text: { tieWordEmbeddings: false },
    vision: { windowMergerLayer: 7, mergeSize: 4 },
  });
});

test("MiniCPM-V 4.7 needs the tokens that belong to a picture", () => {
  const markers = { image_start_id: 1, image_end_id: 2, slice_start_id: 3, slice_end_id: 4, newline_id: 5 };
  expect(parseMiniCpmVConfig({ ...minimal, ...markers }, miniCpmV47).markerIds).toEqual([1, 2, 3, 4, 5]);
  expect(() => parseMiniCpmVConfig({ ...minimal, ...markers, newline_id: null }, miniCpmV47)).toThrow(
    "config.json: newline_id is null",
  );
});

test("windows are merged after the layer that the whole model's configuration names, or never", () => {
  const layers = { ...minimal, insert_layer_id: 2, vision_config: { insert_layer_id: 4 } };
  expect(parseMiniCpmVConfig(layers, miniCpmV46).vision).toMatchObject({ windowMergerLayer: 3, mergeSize: 4 });
  const unmerged = { ...layers, downsample_mode: "4x", insert_layer_id: 40 };
  expect(parseMiniCpmVConfig(unmerged, miniCpmV46).vision).toMatchObject({ windowMergerLayer: null, mergeSize: 2 });
});

const refusals: readonly (readonly [config: object, field: string])[] = [
  [{ drop_vision_last_layer: true }, "drop_vision_last_layer = true"],
  [{ merger_times: 2 }, "merger_times = 2"],
  [{ merge_kernel_size: [2, 3] }, "merge_kernel_size = [2,3]"],
  [{ insert_layer_id: 12 }, "insert_layer_id = 12 is not supported: the vision tower has 12 layers"],
  [{ quantization_config: {} }, "quantization_config = {}"],
  [{ vision_config: { window_kernel_size: [4, 4] } }, "vision_config.window_kernel_size = [4,4]"],
  [{ vision_config: { model_type: "siglip" } }, 'vision_config.model_type = "siglip"'],
  [{ vision_config: { num_channels: 1 } }, "vision_config.num_channels = 1"],
  [{ text_config: { model_type: "qwen3" } }, 'text_config.model_type = "qwen3"'],
  [{ text_config: { num_experts: 8 } }, "text_config.num_experts = 8"],
];

testRefusals(
  refusals.map(([fields, field]): RefusedConfiguration => [{ ...minimal, ...fields }, `config.json: ${field}`]),
);

test.for([
  [{ image_token_id: null }, "config.json: image_token_id is null"],
  [{ downsample_mode: "8x" }, 'config.json: downsample_mode is "8x"'],
  [{ insert_layer_id: -1 }, "config.json: insert_layer_id is -1"],
] as const)("invalid: %o", ([fields, message]) => {
  expect(() => parseMiniCpmVConfig({ ...minimal, ...fields }, miniCpmV46)).toThrow(
    expect.objectContaining({ code: "invalid_checkpoint", message: expect.stringContaining(message) }),
  );
});
