import { expect, test } from "vitest";

import { parseGlm4MoeConfig } from "../../../../engine/models/glm4-moe/config.ts";
import { testRefusals, type RefusedConfiguration } from "../refused-configurations.ts";

const glm4Moe = { architectures: ["Glm4MoeForCausalLM"], head_dim: 128 };

test("missing fields have transformers' defaults", () => {
  expect(parseGlm4MoeConfig(glm4Moe)).toMatchObject({
    vocabSize: 151552,
    hiddenSize: 4096,
    intermediateSize: 10944,
    numLayers: 46,
    numHeads: 96,
    numKvHeads: 8,
    rotaryDim: 64,
    maxPositionEmbeddings: 131072,
    rmsNormEpsilon: 1e-5,
    hasQkvBias: false,
    hasOutputBias: false,
    normalisesQueryAndKey: false,
    experts: {
      numExperts: 128,
      numActive: 8,
      intermediateSize: 1408,
      sharedIntermediateSize: 1408,
      normalises: true,
      factor: 1,
      groups: { numGroups: 1, numActiveGroups: 1 },
    },
  });
});

test("biases are on query, key and value only, and the share of a head beside the frequencies comes first", () => {
  const fields = { attention_bias: true, use_qk_norm: true, partial_rotary_factor: 0.25, first_k_dense_replace: 3 };
  const config = parseGlm4MoeConfig({ ...glm4Moe, ...fields, num_hidden_layers: 5 });
  expect(config).toMatchObject({
    hasQkvBias: true,
    hasOutputBias: false,
    normalisesQueryAndKey: true,
    rotaryDim: 32,
    experts: { layers: [false, false, false, true, true] },
  });
  const rope_parameters = { rope_type: "default", rope_theta: 1e6, partial_rotary_factor: 0.5 };
  const saved = parseGlm4MoeConfig({ ...glm4Moe, ...fields, rope_parameters });
  expect(saved).toMatchObject({ rotaryDim: 64, rope: { theta: 1e6 } });
});

const refusals: readonly (readonly [fields: object, field: string])[] = [
  [{ norm_topk_prob: false }, "norm_topk_prob = false"],
  [{ scoring_func: "softmax" }, 'scoring_func = "softmax"'],
  [{ topk_method: "greedy" }, 'topk_method = "greedy"'],
  [{ mlp_bias: true }, "mlp_bias = true"],
  [{ hidden_act: "gelu" }, 'hidden_act = "gelu"'],
  [{ num_local_experts: 64 }, "num_local_experts = 64"],
  [{ num_experts_per_tok: 129 }, "num_experts_per_tok = 129"],
  [{ n_group: 3 }, "n_group = 3"],
  [{ n_group: 128 }, "n_group = 128"],
  [{ n_group: 32, topk_group: 1 }, "topk_group = 1"],
  [{ n_group: 4, topk_group: 5 }, "topk_group = 5"],
  [{ partial_rotary_factor: 0.01 }, "partial_rotary_factor = 0.01"],
];

testRefusals(
  refusals.map(([fields, field]): RefusedConfiguration => [
    { ...glm4Moe, ...fields },
    `config.json: ${field} is not supported`,
  ]),
);
