import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { parseMolmo2Config } from "../../../../engine/models/molmo2/config.ts";
import { parseCropOptions } from "../../../../engine/models/molmo2/crops.ts";
import { errorOf, testRefusals } from "../refused-configurations.ts";

const folder = new URL("../../../fixtures/hub/molmo2/", import.meta.url);
const read = (generation: "v4" | "v5"): Record<string, Record<string, unknown>> =>
  JSON.parse(readFileSync(new URL(`${generation}/config.json`, folder), "utf8")) as never;
const hub = read("v4");
const inText = (fields: object): object => ({ ...hub, text_config: { ...hub.text_config, ...fields } });
const inTower = (fields: object): object => ({ ...hub, vit_config: { ...hub.vit_config, ...fields } });
const inAdapter = (fields: object): object => ({ ...hub, adapter_config: { ...hub.adapter_config, ...fields } });

test("reads the hub's names of fields like those that transformers writes", () => {
  const { vision, ...ofHub } = parseMolmo2Config(hub);
  const { vision: visionOfSaved, ...saved } = parseMolmo2Config(read("v5"));
  expect(ofHub).toEqual(saved);
  // Files on the hub count the layers that their weights leave out.
  expect(vision).toEqual({ ...visionOfSaved, numLayers: 5 });
  expect(ofHub.pooling.layers).toEqual([4, 2]);
});

testRefusals([
  [inText({ qk_norm_type: "olmo" }), "qk_norm_type"],
  [inText({ norm_after: true }), "norm_after"],
  [inText({ use_qk_norm: false }), "use_qk_norm"],
  [inText({ qkv_bias: true }), "qkv_bias"],
  [inText({ additional_vocab_size: 4 }), "tokens of pictures are among the 4 behind the vocabulary"],
  [{ ...hub, tie_word_embeddings: true }, "tie_word_embeddings"],
  [inTower({ num_key_value_heads: 1 }), "num_key_value_heads"],
  [inTower({ head_dim: 4 }), "head_dim"],
  [inTower({ image_num_pos: 26 }), "image_num_pos"],
  [inTower({ attention_bias: false }), "attention_bias"],
  [inAdapter({ vit_layers: [-6] }), "vit_layers"],
  [inAdapter({ hidden_size: 32, head_dim: 16 }), "hidden_size"],
  [inAdapter({ text_hidden_size: 32 }), "text_hidden_size"],
  [inAdapter({ pooling_attention_mask: false }), "pooling_attention_mask"],
]);

test.for([
  [{ pooling_size: [4, 4] }, "pooling_size is 4x4"],
  [{ overlap_margins: [14, 13] }, "overlap_margins are 14 and 13"],
  [{ size: { height: 378, width: 364 } }, "size is 378x364"],
  [{ patch_size: 16 }, "patch_size is 16"],
  [{ resample: 3 }, "resample is 3"],
  [{ max_crops: 33 }, "max_crops is 33"],
] as const)("rejects the image processor's options %j", ([options, message]) => {
  expect(errorOf(() => parseCropOptions(options as never)).message).toContain(message);
});
