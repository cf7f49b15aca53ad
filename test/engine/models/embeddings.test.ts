/**
 * Engines that pool: the embedding of a conversation, multiplied by the checkpoint's head, gives the logits from which
 * transformers has chosen its first token.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { Engine, GenerationRequest, RequestOutput } from "../../../engine/index.ts";
import { hubCases, hubMessages, writeHubCheckpoint, type HubCase } from "../../support/checkpoints/hub-checkpoints.ts";
import { encodeWithHeader } from "../../support/checkpoints/safetensors-writer.ts";
import { dot, readRows, readSafetensors } from "../../support/checkpoints/stored-rows.ts";
import { hubEngineConfig, hubModelLen } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** By checkpoint: the tensor of the head. None of them changes its logits afterwards. */
const heads = {
  fuyu: "language_model.lm_head.weight",
  gemma3: "language_model.model.embed_tokens.weight",
  "lfm2-vl": "model.language_model.embed_tokens.weight",
  "llava-1.5": "language_model.lm_head.weight",
  persimmon: "lm_head.weight",
  "qwen3-vl": "model.language_model.embed_tokens.weight",
  "qwen3.5": "model.language_model.embed_tokens.weight",
};
/** Different orders of float32 additions. */
const MAX_LOGPROB_DIFFERENCE = 1e-3;

const variants = (["slots", "paged"] as const).flatMap((kvLayout) =>
  Object.entries(heads).map(([name, head]) => ({ name, head, kvLayout })),
);

test.for(variants)("$name over $kvLayout gives the states of transformers", async ({ name, head, kvLayout }) => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v5", folder.path);
  const config = { ...hubEngineConfig(folder.path, cache.path), kvLayout, maxModelLen: hubModelLen(name) };
  // A picture of Gemma 3 is computed in one step.
  const maxNumBatchedTokens = name === "gemma3" ? 140 : config.maxNumBatchedTokens;
  await using engine = poolingEngine({ ...config, maxNumBatchedTokens });
  await engine.ready;
  const rows = await readRows(join(folder.path, "model.safetensors"), head);
  const cases = hubCases(name);
  const together = await Promise.all(cases.map((golden) => embed(engine, golden)));
  // Again, on the keys and values of the first time.
  const alone: RequestOutput[] = [];
  for (const golden of cases) alone.push(await embed(engine, golden));
  for (const outputs of [together, alone]) {
    const logprobs = outputs.map(({ embedding = new Float32Array() }) =>
      logSoftmax(rows.map((row) => dot(row, embedding))),
    );
    for (const [index, { greedyTokenIds, logprobs: expected }] of cases.entries()) {
      const [tokenId] = greedyTokenIds;
      expect(Math.abs(logprobs[index]![tokenId!]! - expected[0]!)).toBeLessThan(MAX_LOGPROB_DIFFERENCE);
    }
  }
  const { promptTokenIds } = cases[0]!;
  expect(together[0]).toMatchObject({
    text: "",
    tokenIds: [],
    finishReason: "stop",
    numPromptTokens: promptTokenIds.length,
    numOutputTokens: 0,
  });
  expect(engine.modelInfo!.embeddingSize).toBe(together[0]!.embedding!.length);
});

test("a text model that was saved without a head has names without a prefix", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("qwen3", "v5", folder.path);
  const config = hubEngineConfig(folder.path, cache.path);
  const [golden] = hubCases("qwen3") as [HubCase];
  const embeddings: unknown[] = [];
  const path = join(folder.path, "model.safetensors");
  for (const hasPrefix of [true, false]) {
    const { file, start, header } = await readSafetensors(path);
    const bare = Object.fromEntries(
      Object.entries(header).map(([name, entry]) => [name.replace(/^model\./u, ""), entry]),
    );
    if (!hasPrefix) await writeFile(path, encodeWithHeader(bare, [file.subarray(start)]));
    await using engine = poolingEngine(config);
    await engine.ready;
    embeddings.push((await embed(engine, golden)).embedding);
  }
  expect(embeddings[0]).toBeInstanceOf(Float32Array);
  expect(embeddings[1]).toEqual(embeddings[0]);
});

function poolingEngine(config: ReturnType<typeof hubEngineConfig>): Engine & AsyncDisposable {
  const engine = createEngine({ ...config, runner: "pooling" }, { imageSources: [createDataUrlImageSource()] });
  return Object.assign(engine, { [Symbol.asyncDispose]: () => engine.close() });
}

async function embed(engine: Engine, golden: HubCase): Promise<RequestOutput> {
  const request: GenerationRequest = {
    requestId: golden.name,
    prompt: { kind: "chat", messages: await hubMessages(golden), addGenerationPrompt: true },
    samplingParams: createSamplingParams({}),
    task: "embed",
  };
  const outputs: RequestOutput[] = [];
  for await (const output of engine.generate(request)) outputs.push(output);
  expect(outputs).toHaveLength(1);
  return outputs[0]!;
}

function logSoftmax(logits: readonly number[]): number[] {
  const largest = Math.max(...logits);
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0);
  return logits.map((logit) => logit - largest - Math.log(total));
}
