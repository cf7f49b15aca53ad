import { expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../../../engine/index.ts";
import type { EngineConfig } from "../../../../engine/index.ts";
import { planKvCache } from "../../../../engine/kv/memory-plan.ts";
import { gemma4TextDefinition } from "../../../../engine/models/gemma4/definition.ts";
import { imaginedWeights } from "../../../../engine/models/weight-source.ts";
import { hubCases, writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { configureGraphs } from "../../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

/** Gemma 4 E2B's. */
const e2b = {
  hidden_size: 1536,
  num_hidden_layers: 35,
  layer_types: Array.from({ length: 35 }, (_, layer) => (layer % 5 === 4 ? "full_attention" : "sliding_attention")),
  num_attention_heads: 8,
  num_key_value_heads: 1,
  num_kv_shared_layers: 20,
};

test("layers that read other layers' keys and values take no memory", () => {
  const decoder = { ...gemma4TextDefinition.configure(e2b).decoder, kvElementType: "bfloat16" } as const;
  expect(decoder.kvReaders).toHaveLength(20);
  expect(new Set(decoder.kvReaders)).toEqual(new Set([13, 14]));
  // (12 layers of 256 numbers + 3 of 512) * 2 (keys and values) * 2 bytes.
  expect(planKvCache(decoder, { numSlots: 1, maxLen: 1 }).bytesPerToken).toBe(18_432);
});

test.for([
  [{ kind: "slots" }, "tailN"],
  [{ kind: "paged", blockSize: 16 }, "N"],
] as const)("over %o, layers that read others' keys and values compute %s tokens", ([kvLayout, numTokens]) => {
  const { buildDecoder } = configureGraphs(
    { architectures: ["Gemma4ForCausalLM"], ...e2b },
    { dtype: "float32", device: "cpu", maxModelLen: 64, kvLayout },
  );
  const { nodes } = buildDecoder(imaginedWeights).graph;
  const tokensOf = (layer: number) =>
    nodes.find(({ name }) => name === `model.layers.${layer}.self_attn.q_proj`)?.outputs[0]?.shape[0];
  expect([0, 14, 15, 34].map(tokensOf)).toEqual(["N", "N", numTokens, numTokens]);
});

/** Mean difference from the recorded log probabilities of the prompt's continuation, computed as one prompt. */
async function meanDifference(settings: Pick<EngineConfig, "dtype" | "kvCacheDtype">): Promise<number> {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("gemma4-text", "v4", folder.path);
  const limits = { maxModelLen: 128, maxNumSequences: 2, maxNumBatchedTokens: 24, numThreads: 1 };
  const engine = createEngine({ model: folder.path, cacheFolder: cache.path, ...limits, ...settings });
  try {
    await engine.ready;
    const differences: number[] = [];
    for (const golden of hubCases("gemma4-text")) {
      const tokenIds = [...golden.promptTokenIds, ...golden.greedyTokenIds];
      const outputs = engine.generate({
        requestId: golden.name,
        prompt: { kind: "tokens", tokenIds },
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: 2, promptLogprobs: 0, ignoreEos: true }),
      });
      for await (const { prompt } of outputs) {
        if (prompt === null) continue;
        for (const [index, expected] of golden.logprobs.entries()) {
          const logprob = prompt.logprobs?.[golden.promptTokenIds.length + index]?.sampled.logprob;
          differences.push(Math.abs((logprob ?? Infinity) - expected));
        }
      }
    }
    expect(differences).toHaveLength(64);
    return differences.reduce((sum, difference) => sum + difference, 0) / differences.length;
  } finally {
    await engine.close();
  }
}

// Measured: 0.05 and 0.07. Random weights are the worst case of quantisation, see `quantised-fidelity.test.ts`.
test.for([
  [{ dtype: "float32", kvCacheDtype: "int8" }, 0.1],
  [{ dtype: "int8", kvCacheDtype: "auto" }, 0.2],
] as const)("with %o, log probabilities stay near transformers'", async ([settings, bound]) => {
  expect(await meanDifference(settings)).toBeLessThan(bound);
});
