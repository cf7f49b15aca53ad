/** Fields of Granite 4 Vision's config.json. */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { parseGranite4VisionConfig } from "../../../../engine/models/granite4-vision/config.ts";

const file = new URL("../../../fixtures/hub/granite4-vision/v4/config.json", import.meta.url);
const config = JSON.parse(await readFile(file, "utf8")) as Record<string, object>;

test("levels are in the order of the decoder's layers, with states counted from the tower's end", () => {
  const { levels } = parseGranite4VisionConfig(config);
  expect(levels.map(({ decoderLayer, towerLayers, corner }) => [decoderLayer, towerLayers, corner])).toEqual([
    [0, 3, null],
    [1, 2, [0, 0]],
    [2, 2, [0, 1]],
    [3, 1, null],
    [4, 2, [1, 0]],
    [5, 2, [1, 1]],
  ]);
});

test.for([
  [{ downsample_rate: "3/8" }, "config.json: downsample_rate"],
  [{ downsample_rate: "8/16" }, "divides 8, the patches of a side"],
  [{ vision_feature_select_strategy: "default" }, "SigLIP has no class token"],
  [{ deepstack_layer_map: [[-5, 3]] }, "the tower has 3 layers"],
  [{ deepstack_layer_map: [[-1, 4]] }, "expected different layers of the decoder's 7"],
  [{ spatial_target_layers: [1, 2, 4, 7] }, "expected different layers of the decoder's 7"],
  [{ vision_config: { ...config.vision_config, model_type: "clip_vision_model" } }, "vision_config.model_type"],
  [{ qformer_config: { use_qformer_text_input: true } }, "qformer_config.use_qformer_text_input"],
] as const)("%o is rejected by name", ([fields, message]) => {
  expect(() => parseGranite4VisionConfig({ ...config, ...fields })).toThrow(message);
});
