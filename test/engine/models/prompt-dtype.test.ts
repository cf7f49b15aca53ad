import { describe, expect, test } from "vitest";

import type { DtypeName } from "../../../engine/contract/config.ts";
import { openCheckpoint, type Checkpoint } from "../../../engine/weights/checkpoint.ts";
import { loadQuantisedCheckpoint } from "../../support/checkpoints/quantised-checkpoints.ts";
import { resolvePromptDtype } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const GIBIBYTE = 2 ** 30;
const slots = { layout: { kind: "slots" }, precision: { kind: "activations" } } as const;
const int8Slots = { ...slots, precision: { kind: "int8", steps: null } } as const;
const cpu = { device: "cpu", promptDtype: "int8" } as const;

/** A token has 2 * 4 * 2 * 64 = 1,024 numbers. */
const tinyConfig = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 100,
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  hidden_act: "silu",
  rms_norm_eps: 1e-5,
  max_position_embeddings: 2048,
};

type Weights = Pick<Checkpoint, "config" | "onnxFileNames" | "tensors">;

const weights = (numWeights: number) =>
  ({
    config: tinyConfig,
    onnxFileNames: null,
    tensors: new Map([["w", { shape: [numWeights] }]]),
  }) as unknown as Weights;

async function quantised(name: string): Promise<Weights> {
  await using cache = await createTemporaryFolder();
  return await openCheckpoint(loadQuantisedCheckpoint(name).checkpointFolder, { cacheFolder: cache.path });
}

test.for([
  { dtype: "int4", numWeights: 2 * GIBIBYTE, widened: "own" },
  { dtype: "int4", numWeights: 2 * GIBIBYTE + 1, widened: "none" },
  { dtype: "int4", numWeights: 2 * GIBIBYTE + 1, promptDtype: "int8", widened: "own" },
  { dtype: "int4", numWeights: 1, promptDtype: "model", widened: "none" },
  { dtype: "int8", numWeights: 1, widened: "none" },
] as const)("$dtype with $numWeights weights on a machine of 6 GiB and $promptDtype widens $widened", (options) => {
  const settings = { device: "cpu", ...options } as const;
  expect(resolvePromptDtype(settings, slots, weights(options.numWeights), 6 * GIBIBYTE)).toBe(options.widened);
});

test("a model with mixtures of experts has no 8-bit weights for prompts", () => {
  const experts = { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 64 };
  const config = { ...tinyConfig, ...experts, architectures: ["Qwen3MoeForCausalLM"], model_type: "qwen3_moe" };
  const checkpoint = { ...weights(1), config };
  const settings = { device: "cpu", dtype: "int4" } as const;
  expect(resolvePromptDtype(settings, slots, checkpoint, GIBIBYTE)).toBe("none");
  expect(() => resolvePromptDtype({ ...settings, promptDtype: "int8" }, slots, checkpoint, GIBIBYTE)).toThrow(
    '8-bit weights for prompts would slow a model with mixtures of experts down many times. Choose the prompt dtype "model" or "auto".',
  );
});

test("8-bit weights for prompts are not chosen where the longest sequence would not fit beside them", () => {
  const settings = { device: "cpu", dtype: "int4" } as const;
  const choose = (form: typeof slots | typeof int8Slots, maxModelLen: number | null): string =>
    resolvePromptDtype({ ...settings, maxModelLen }, form, weights(2 * GIBIBYTE), 10 * GIBIBYTE);
  const longest = (5 * GIBIBYTE) / 1024;
  expect(choose(int8Slots, longest)).toBe("own");
  expect(choose(int8Slots, longest + 1)).toBe("none");
  expect(choose(slots, longest / 4)).toBe("own");
  expect(choose(slots, longest / 4 + 1)).toBe("none");
  expect(choose(slots, null)).toBe("own");
});

test("8-bit weights for prompts are not chosen beside drafts, which need one form of weights", () => {
  const speculativeConfig = {
    method: "ngram",
    numSpeculativeTokens: 3,
    promptLookupMin: 2,
    promptLookupMax: 4,
  } as const;
  const settings = { device: "cpu", dtype: "int4", speculativeConfig } as const;
  expect(resolvePromptDtype(settings, slots, weights(1), GIBIBYTE)).toBe("none");
  expect(resolvePromptDtype({ ...settings, speculativeConfig: null }, slots, weights(1), GIBIBYTE)).toBe("own");
});

describe.for(["awq-64", "gptq-act-order", "gptq-8bit", "ct-w4a16", "ct-w8a16", "ct-mixed"])("%s", (name) => {
  test.for<DtypeName>(["auto", "int8", "int4"])(
    "has 8-bit weights for prompts in %s if they are asked for",
    async (dtype) => {
      const checkpoint = await quantised(name);
      expect(resolvePromptDtype({ ...cpu, dtype }, slots, checkpoint, 1)).toBe("all");
      expect(resolvePromptDtype({ ...cpu, dtype, promptDtype: "model" }, slots, checkpoint, GIBIBYTE)).toBe("none");
      const byItself = dtype === "int4" ? "own" : "none";
      expect(resolvePromptDtype({ ...cpu, dtype, promptDtype: "auto" }, slots, checkpoint, GIBIBYTE)).toBe(byItself);
    },
  );
});

test.for([
  { name: null, dtype: "int8", reason: "there are none of them with dtype int8" },
  { name: null, dtype: "int4", device: "webgpu", reason: "are for the device cpu; the device is webgpu" },
  { name: null, dtype: "int4", layout: "paged", reason: "are for KV slots; the KV layout is paged" },
  { name: "awq-64", dtype: "float32", reason: "there are none of them with dtype float32" },
  { name: "awq-64", dtype: "auto", device: "cuda", reason: "are for the device cpu; the device is cuda" },
  { name: "awq-64", dtype: "auto", device: "webgpu", reason: "are for the device cpu; the device is webgpu" },
  { name: "awq-64", dtype: "auto", layout: "paged", reason: "are for KV slots; the KV layout is paged" },
  // Its prompts and newest tokens have 8-bit weights and activations already.
  { name: "ct-w8a8", dtype: "auto", reason: "there are none of them with dtype auto" },
  { name: "fp8-blocks", dtype: "auto", reason: "there are none of them with dtype auto" },
  { name: "bnb-int8", dtype: "int8", reason: "there are none of them with dtype int8" },
] as const)("8-bit weights for prompts are refused: $name in $dtype, $reason", async (refused) => {
  const { name, reason } = refused;
  const form = "layout" in refused ? ({ ...slots, layout: { kind: "paged", blockSize: 16 } } as const) : slots;
  const checkpoint = name === null ? weights(1) : await quantised(name);
  expect(() => resolvePromptDtype({ ...cpu, ...refused }, form, checkpoint, GIBIBYTE)).toThrow(
    expect.objectContaining({ code: "invalid_configuration", message: expect.stringContaining(reason) as unknown }),
  );
});

test("8-bit weights for prompts are refused for an ONNX export, whose configuration may be of any kind", () => {
  const checkpoint = { ...weights(1), onnxFileNames: ["model.onnx"], config: { quantization_config: 1 } };
  expect(() => resolvePromptDtype({ ...cpu, dtype: "int4" }, slots, checkpoint, GIBIBYTE)).toThrow(
    "cannot be made for a ready-made ONNX export",
  );
  expect(resolvePromptDtype({ device: "cpu", dtype: "auto" }, slots, checkpoint, GIBIBYTE)).toBe("none");
});
