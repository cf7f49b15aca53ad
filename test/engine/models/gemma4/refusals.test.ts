import { expect, test } from "vitest";

import { gemma4TextDefinition } from "../../../../engine/models/gemma4/definition.ts";
import { createGraphContext } from "../../../../engine/models/graph-context.ts";
import { imaginedWeights } from "../../../../engine/models/weight-source.ts";
import { resolveKvLayout, findModelDefinition } from "../../../support/engine/shipped-models.ts";

const layerTypes = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"];
const text = {
  architectures: ["Gemma4ForCausalLM"],
  hidden_size: 64,
  num_hidden_layers: 4,
  layer_types: layerTypes,
};

test.for<[changes: Readonly<Record<string, unknown>>, message: string]>([
  [{ enable_moe_block: true }, "config.json: enable_moe_block = true is not supported: it needs num_experts"],
  [
    { enable_moe_block: true, num_experts: 2, top_k_experts: 4, moe_intermediate_size: 16 },
    "config.json: top_k_experts = 4 is not supported: there are 2 experts",
  ],
  [{ attention_bias: true }, "config.json: attention_bias = true is not supported"],
  [
    { use_bidirectional_attention: "all" },
    'config.json: use_bidirectional_attention = "all" is not supported: a decoder\'s text tokens see earlier ones only',
  ],
  [
    { vocab_size_per_layer_input: 1000 },
    "config.json: vocab_size_per_layer_input = 1000 is not supported: the vocabulary has 262144 tokens",
  ],
  [
    { num_kv_shared_layers: 4 },
    "config.json: num_kv_shared_layers = 4 is not supported: there are 4 layers, and the first must have keys and values",
  ],
  [
    { num_kv_shared_layers: 3 },
    "config.json: num_kv_shared_layers = 3 is not supported: layer 1 (full_attention) would read keys and values of an earlier layer of its kind, and there is none",
  ],
  [{ layer_types: layerTypes.slice(1) }, "is not supported: there are 4 layers"],
  [{ num_key_value_heads: 3 }, "config.json: num_key_value_heads = 3 is not supported: layer 0 has 8 query heads"],
  [{ global_head_dim: 100 }, "config.json: head_dim = 100 is not supported: it must be a multiple of 8"],
  [
    { per_layer_config: { 1: { head_dim: 64 } } },
    'config.json: per_layer_config = {"1":{"head_dim":64}} is not supported: layers of the same kind have the same frequencies',
  ],
  [{ per_layer_config: { 1: { hidden_size: 64 } } }, "config.json: per_layer_config.1"],
  [
    { per_layer_config: { full_attention: { head_dim: 64 } } },
    'config.json: per_layer_config is an object; expected layers by index, such as "04"',
  ],
  [
    { rope_parameters: { full_attention: { rope_type: "proportional", partial_rotary_factor: 2 } } },
    "partial_rotary_factor = 2 is not supported: expected a share from 0 to 1",
  ],
])("%j is rejected by name", ([changes, message]) => {
  const config = { ...text, ...changes };
  expect(() => findModelDefinition(config).configure(config)).toThrow(message);
});

test("float16 is rejected", () => {
  const plain = { kind: "plain", elementType: "float16" } as const;
  const context = createGraphContext("decoder", {
    weights: imaginedWeights,
    precision: { activations: "float16", linear: plain, head: plain, vision: plain },
    device: "cuda",
    kvLayout: { kind: "slots" },
  });
  expect(() => gemma4TextDefinition.configure(text).buildDecoder(context, 128)).toThrow(
    "The activations of Gemma 4 exceed the range of float16; choose the dtype float32, or bfloat16 on cuda.",
  );
});

test("on cuda, heads that paged attention does not compute have slots, and blocks are rejected", () => {
  const checkpoint = { config: text, onnxFileNames: null };
  expect(resolveKvLayout({ device: "cuda" }, checkpoint)).toEqual({ kind: "slots" });
  expect(() => resolveKvLayout({ device: "cuda", kvLayout: "paged" }, checkpoint)).toThrow(
    'The model has heads of 512 numbers; paged attention on cuda computes at most 256. Choose the KV layout "slots" or "auto".',
  );
  const smaller = { config: { ...text, global_head_dim: 256 }, onnxFileNames: null };
  expect(resolveKvLayout({ device: "cuda" }, smaller)).toEqual({ kind: "paged", blockSize: 64 });
});
