import { expect, test } from "vitest";

import { parseLfm3Config } from "../../../../engine/models/lfm2/lfm3-config.ts";
import { findModelDefinition } from "../../../support/engine/shipped-models.ts";
import { testRefusals } from "../refused-configurations.ts";

const text = { architectures: ["Lfm2ForCausalLM"], num_hidden_layers: 3 };
const layerTypes = ["conv", "full_attention", "conv"];

testRefusals([
  [{ ...text, model_type: "lfm2_moe" }, 'config.json: model_type = "lfm2_moe" is not supported'],
  [{ ...text, architectures: ["Lfm2MoeForCausalLM"] }, "The architecture Lfm2MoeForCausalLM is not supported"],
  [{ ...text, block_use_swiglu: false }, "config.json: block_use_swiglu = false is not supported"],
  [{ ...text, use_pos_enc: false }, "config.json: use_pos_enc = false is not supported"],
  [{ ...text, hidden_act: "gelu" }, 'config.json: hidden_act = "gelu" is not supported'],
  [
    { ...text, num_attention_heads: 24 },
    "config.json: num_attention_heads = 24 is not supported: hidden_size 2560 is not a multiple of it",
  ],
  [{ ...text, layer_types: layerTypes.slice(1) }, "is not supported: there are 3 layers"],
  [
    { ...text, layer_types: layerTypes.with(0, "sliding_attention") },
    "is not supported: supported are conv and full_attention",
  ],
  [
    { ...text, full_attn_idxs: [] },
    'layer_types = ["conv","conv","conv"] is not supported: no layer has full_attention',
  ],
  [
    { ...text, block_ffn_dim_multiplier: 1024 },
    "config.json: block_ffn_dim_multiplier = 1024 is not supported: perceptrons would have a width of 8388608",
  ],
]);

const lfm3 = { architectures: ["Lfm3ForCausalLM"] };
const full = { rope_type: "default", rope_theta: 10_000 };

testRefusals([
  [{ ...lfm3, model_type: "lfm2" }, 'config.json: model_type = "lfm2" is not supported'],
  [{ ...lfm3, head_dim: 20 }, "config.json: head_dim = 20 is not supported: it must be a multiple of 8"],
  [{ ...lfm3, layer_types: ["conv"] }, 'layer_types = ["conv"] is not supported: there are 24 layers'],
  [{ ...lfm3, rope_parameters: { full_attention: full } }, "is not supported: it lacks sliding_attention"],
  [
    { ...lfm3, rope_parameters: { full_attention: { ...full, partial_rotary_factor: 0.5 } }, num_hidden_layers: 3 },
    "partial_rotary_factor = 0.5 is not supported",
  ],
]);

test("layers of LFM3 have the kinds that transformers gives them", () => {
  const config = { ...lfm3, num_hidden_layers: 8 };
  const { layerTypes: types } = parseLfm3Config(config, "");
  const expected = "conv conv full_attention conv sliding_attention conv full_attention conv";
  expect(types.join(" ")).toBe(expected);
});

test.for([
  [{ layer_types: layerTypes }, { numLayers: 2, numChannels: 2560, kernelSize: 3, matrices: null }],
  [{ full_attn_idxs: [0] }, { numLayers: 2, numChannels: 2560, kernelSize: 3, matrices: null }],
  // Without a list, all layers attend.
  [{}, undefined],
] as const)("%j has states of its convolutions alone", ([changes, recurrent]) => {
  const config = { ...text, ...changes };
  expect(findModelDefinition(config).configure(config).decoder.recurrent).toEqual(recurrent);
});
