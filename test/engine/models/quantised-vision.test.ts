/** A vision-language model whose decoder is quantised and whose tower is not, from a conversation to tokens. */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { decodeModel } from "../../../engine/graph/onnx-schema.ts";
import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { DtypeName } from "../../../engine/index.ts";
import { hubMessages, type HubCase } from "../../support/checkpoints/hub-checkpoints.ts";
import { writeVisionCheckpoint } from "../../support/checkpoints/quantised-checkpoints.ts";
import { smallEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";

/** By case: the ids of the prompt and of the answer, and the answer's log probabilities. */
async function answers(kvLayout: "slots" | "paged", dtype: DtypeName) {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  const cases = await writeVisionCheckpoint(folder.path);
  const config = {
    ...smallEngineConfig(folder.path, cache.path),
    maxModelLen: 512,
    maxNumSequences: 7,
    maxNumWaiting: 7,
    kvLayout,
    dtype,
    // Fewer than a picture has, so that prompts end inside of one.
    maxNumBatchedTokens: 24,
  };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    // Penalties are the checkpoint's, as in transformers.
    const samplingParams = createSamplingParams({
      ...engine.modelInfo!.defaultSamplingParams,
      temperature: 0,
      topK: 0,
      topP: 1,
      maxTokens: 32,
      ignoreEos: true,
      logprobs: 0,
    });
    const ask = async (golden: HubCase) => {
      const prompt = { kind: "chat", messages: await hubMessages(golden), addGenerationPrompt: true } as const;
      const request = { requestId: golden.name, prompt, samplingParams, includePrompt: true };
      const answer = { promptTokenIds: [] as number[], tokenIds: [] as number[], logprobs: [] as number[] };
      for await (const output of engine.generate(request)) {
        answer.promptTokenIds.push(...(output.prompt?.tokens.map(({ tokenId }) => tokenId) ?? []));
        answer.tokenIds.push(...output.tokenIds);
        answer.logprobs.push(...(output.logprobs ?? []).map(({ sampled }) => sampled.logprob));
      }
      return { golden, answer };
    };
    return await Promise.all(cases.map(ask));
  } finally {
    await engine.close();
  }
}

function largestDifference(left: readonly number[], right: readonly number[]): number {
  return Math.max(...left.map((value, index) => Math.abs(value - (right[index] ?? Infinity))));
}

test.for(["slots", "paged"] as const)("in float32 over %s answers like transformers", async (kvLayout) => {
  for (const { golden, answer } of await answers(kvLayout, "float32")) {
    expect(answer.promptTokenIds).toEqual(golden.promptTokenIds);
    expect(answer.tokenIds).toEqual(golden.greedyTokenIds);
    expect(answer.logprobs).toHaveLength(golden.logprobs.length);
    expect(largestDifference(golden.logprobs, answer.logprobs)).toBeLessThan(1e-3);
  }
});

test.for(["slots", "paged"] as const)(
  "with stored integers over %s most answers begin like transformers'",
  async (kvLayout) => {
    const all = await answers(kvLayout, "auto");
    // Activations of 8 bits decide close choices of a model with random weights otherwise.
    const equal = all.filter(({ golden, answer }) => answer.tokenIds[0] === golden.greedyTokenIds[0]);
    expect(equal.length).toBeGreaterThan(all.length / 2);
    for (const { golden, answer } of equal)
      expect(Math.abs(answer.logprobs[0]! - golden.logprobs[0]!)).toBeLessThan(0.2);
  },
);

test("the decoder computes with integers where the files have them, and the tower with floats", async () => {
  await using folder = await createTemporaryFolder();
  await writeVisionCheckpoint(folder.path);
  const model = await buildFrom(folder.path, { cacheFolder: folder.path, dtype: "auto" });
  const products = async (path: string) => {
    const { graph } = decodeModel(await readFile(path));
    return graph.node
      .filter(({ opType }) => opType === "MatMulNBits" || opType === "Gemm")
      .map(({ opType, name }) => [opType, name]);
  };
  const tower = await products(model.visionEncoder!.path);
  expect(new Set(tower.map(([operator]) => operator))).toEqual(new Set(["Gemm"]));
  const decoder = await products(model.decoder.path);
  const integers = decoder.filter(([operator]) => operator === "MatMulNBits").map(([, name]) => name);
  expect(integers).toEqual(
    [0, 1].flatMap((layer) =>
      ["qkv", "o_proj"].map((part) => expect.stringMatching(`layers.${layer}.self_attn.${part}`)),
    ),
  );
  expect(decoder.filter(([operator]) => operator === "Gemm").length).toBe(2 * 3 + 1);
});
