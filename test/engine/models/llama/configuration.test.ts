/** Configurations of text decoders of the Llama family: Llama, Mistral, Qwen2, Qwen3, Phi-3 and Ministral. */
import { expect, test } from "vitest";

import { parseDecoderConfig } from "../../../../engine/models/llama/config.ts";
import { parseQwen35Text } from "../../../../engine/models/qwen3-5/config.ts";
import { errorOf, testRefusals } from "../refused-configurations.ts";

const llama = { architectures: ["LlamaForCausalLM"], hidden_size: 64, num_attention_heads: 4, num_hidden_layers: 2 };
const mistral = { ...llama, architectures: ["MistralForCausalLM"], num_key_value_heads: 4 };
const qwen2 = { ...llama, architectures: ["Qwen2ForCausalLM"], num_key_value_heads: 4 };
const qwen3 = { ...qwen2, architectures: ["Qwen3ForCausalLM"] };
const qwen3Moe = { ...qwen3, architectures: ["Qwen3MoeForCausalLM"] };

testRefusals([
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
  [{ ...qwen3, head_dim: 20 }, "config.json: head_dim = 20 is not supported"],
  [{ ...qwen3, mlp_bias: true }, "config.json: mlp_bias = true is not supported"],
  [{ ...qwen3, num_experts: 128 }, "config.json: num_experts = 128 is not supported"],
  [qwen3Moe, "config.json: num_experts = null is not supported: it is required"],
  [{ ...qwen3Moe, num_experts: 4 }, "config.json: num_experts_per_tok = 8 is not supported: there are 4 experts"],
  [
    { ...qwen3Moe, num_experts: 8, num_local_experts: 16 },
    "config.json: num_local_experts = 16 is not supported: num_experts is 8",
  ],
  [
    { ...qwen3Moe, num_experts: 8, use_sliding_window: true },
    "config.json: use_sliding_window = true is not supported",
  ],
  [
    { ...qwen3, use_sliding_window: true, layer_types: ["chunked_attention", "full_attention"] },
    'config.json: layer_types = "chunked_attention" is not supported',
  ],
  [
    { ...qwen3, layer_types: ["full_attention", "sliding_attention"] },
    'config.json: layer_types = "sliding_attention" is not supported',
  ],
]);

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

test.for(["qwen2", "qwen3"] as const)(
  "%s has windows in its upper layers only if use_sliding_window is set",
  (family) => {
    const sliding = { ...qwen2, sliding_window: 16, max_window_layers: 1 };
    expect(parseDecoderConfig(sliding, "", family).slidingWindows).toEqual([null, null]);
    expect(parseDecoderConfig({ ...sliding, use_sliding_window: true }, "", family).slidingWindows).toEqual([null, 16]);
  },
);

test.for([
  ["of the length that it extends", { original_max_position_embeddings: 32768 }, 40960, 131072],
  ["that states no length", {}, 40960, 40960],
  ["that reaches no further than the model", { original_max_position_embeddings: 32768 }, 262144, 262144],
  ["beyond all bounds", { original_max_position_embeddings: 1e300 }, 40960, 2 ** 27],
] as const)("the longest sequence with YaRN %s", ([, stated, max_position_embeddings, expected]) => {
  const rope = { rope_type: "yarn", factor: 4, ...stated };
  const fields = { max_position_embeddings, rope_parameters: rope };
  expect(parseDecoderConfig({ ...qwen3, ...fields }, "", "qwen3").maxPositionEmbeddings).toBe(expected);
  expect(parseQwen35Text({ num_hidden_layers: 4, ...fields }, "").maxPositionEmbeddings).toBe(expected);
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

const longRope = {
  type: "longrope",
  short_factor: Array.from({ length: 36 }, () => 1),
  long_factor: Array.from({ length: 36 }, (_, index) => 1 + index),
};

test.for(["longrope", "su", "yarn"])("LongRoPE of Phi-3 may be called %s, and rotates a part of each head", (type) => {
  const fields = {
    max_position_embeddings: 131_072,
    original_max_position_embeddings: 4096,
    partial_rotary_factor: 0.75,
    rope_scaling: { ...longRope, type },
  };
  const { rope, rotaryDim, maxPositionEmbeddings } = parseDecoderConfig(fields, "", "phi3");
  expect({ rotaryDim, maxPositionEmbeddings }).toEqual({ rotaryDim: 72, maxPositionEmbeddings: 131_072 });
  expect(rope.scaling).toMatchObject({
    kind: "longrope",
    longFactors: longRope.long_factor,
    attentionFactor: Math.sqrt(1 + Math.log(32) / Math.log(4096)),
    originalMaxPositionEmbeddings: 4096,
  });
});

test.for([
  [{ rope_scaling: { ...longRope, type: "linear" } }, 'rope_scaling.type = "linear"'],
  [{ rope_parameters: { rope_type: "llama3" } }, 'rope_parameters.rope_type = "llama3"'],
  [{ rope_scaling: longRope }, 'rope_scaling.rope_type = "longrope"'],
  [{ partial_rotary_factor: 0.01 }, "partial_rotary_factor = 0.01"],
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
