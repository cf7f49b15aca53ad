/** Queries that grow with their position, in every form of keys and values, against transformers' probabilities. */
import { describe, expect, test } from "vitest";

import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { hubCases, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom, type DirectBuildOptions } from "./direct-build.ts";
import { DirectDecoder } from "./direct-decoder.ts";

const name = "ministral3";
/** 97 tokens of text, with 32 more; the factor grows after every 32. */
const golden = hubCases(name).find((row) => row.pictures.length === 0)!;
const sampleTokens = async (): Promise<number[]> => Array.from({ length: 64 }, (_, index) => (index * 7 + 3) % 250);

async function differences(options: Partial<DirectBuildOptions>): Promise<number[]> {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v5", folder.path);
  const model = await buildFrom(folder.path, { cacheFolder: cache.path, dtype: "float32", ...options });
  using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 512 });
  const { promptTokenIds: prompt, greedyTokenIds: answer } = golden;
  const { vocabSize } = model.decoder;
  return answer.map((token, step) => {
    const tokens = step === 0 ? prompt : [answer[step - 1]!];
    const numComputed = step === 0 ? 0 : prompt.length + step - 1;
    const logits = decoder.run({ tokenIds: [tokens], numComputed: [numComputed], logitRows: [tokens.length - 1] });
    expect(logits).toHaveLength(vocabSize);
    const largest = Math.max(...logits);
    const sum = logits.reduce((total, logit) => total + Math.exp(logit - largest), 0);
    return Math.abs(logits[token]! - largest - Math.log(sum) - golden.logprobs[step]!);
  });
}

test("keys and values in floats give transformers' probabilities", async () => {
  expect(Math.max(...(await differences({})))).toBeLessThan(1e-3);
});

test("keys and values in 8 bits give nearly the same", async () => {
  const kvPrecision = { kind: "int8", steps: null } as const;
  // Measured: 0.17 at most; 4.9 if queries do not grow.
  expect(Math.max(...(await differences({ kvPrecision, sampleTokens })))).toBeLessThan(0.5);
});

describe("the factor is left out of graphs in which it is 1", () => {
  const config = {
    architectures: ["Ministral3ForCausalLM"],
    num_hidden_layers: 1,
    rope_parameters: {
      rope_type: "yarn",
      factor: 4,
      original_max_position_embeddings: 64,
      llama_4_scaling_beta: 0.1,
    },
  };

  test.for([
    { maxModelLen: 64, isThere: false },
    { maxModelLen: 65, isThere: true },
  ])("for sequences of $maxModelLen tokens: $isThere", ({ maxModelLen, isThere }) => {
    const graphs = configureGraphs(config, { dtype: "float32", device: "cpu", maxModelLen });
    const { graph } = graphs.buildDecoder(imaginedWeights);
    expect(graph.nodes.some((node) => node.name === "query_factors")).toBe(isThere);
  });
});
