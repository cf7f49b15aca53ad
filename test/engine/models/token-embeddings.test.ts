/** Retrieval models: the embedding of a token is the projection of the state that an engine for embeddings returns. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { Engine, EngineOptions, Prompt, RequestOutput, TaskName } from "../../../engine/index.ts";
import { hubCases, hubMessages, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { EMBEDDING_SIZE, retrieverFormats, writeRetriever } from "../../support/checkpoints/retriever-checkpoint.ts";
import { hubEngineConfig, hubModelLen } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Different orders of float32 additions. */
const MAX_DIFFERENCE = 1e-3;

const variants = (["slots", "paged"] as const).flatMap((kvLayout) =>
  retrieverFormats.map((format) => ({ ...format, format, kvLayout })),
);

test.for(variants)("$architecture over $kvLayout embeds every token", async ({ format, kvLayout }) => {
  await using folder = await createTemporaryFolder();
  await using plain = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  const { weight, bias } = await writeRetriever(format, folder.path);
  await writeHubCheckpoint(format.model, "v5", plain.path);
  const config = { ...hubEngineConfig(folder.path, cache.path), kvLayout, maxModelLen: hubModelLen(format.model) };
  const picture = hubCases(format.model).find(({ pictures }) => pictures.length > 0);
  const prompts: readonly Prompt[] = [
    { kind: "chat", messages: await hubMessages(picture!), addGenerationPrompt: true },
    // In several steps.
    { kind: "tokens", tokenIds: Array.from({ length: 90 }, (_, index) => (index * 7) % 200) },
  ];
  const [ofPicture, ofText] = await run({ ...config, maxNumBatchedTokens: 64 }, "token_embed", prompts);
  expect(ofPicture!.tokenEmbeddings).toHaveLength(picture!.promptTokenIds.length * EMBEDDING_SIZE);
  expect(ofPicture).toMatchObject({ text: "", tokenIds: [], finishReason: "stop", numOutputTokens: 0 });
  // The state of a token does not depend on later ones.
  const lengths = [1, 33, 64, 65, 90];
  const { tokenIds } = prompts[1] as { readonly tokenIds: readonly number[] };
  const states = await run({ ...config, model: plain.path }, "embed", [
    prompts[0]!,
    ...lengths.map((length): Prompt => ({ kind: "tokens", tokenIds: tokenIds.slice(0, length) })),
  ]);
  const expected = states.map(({ embedding = new Float32Array() }) => project(embedding, weight, bias));
  expect(distance(rowOf(ofPicture!, picture!.promptTokenIds.length - 1), expected[0]!)).toBeLessThan(MAX_DIFFERENCE);
  for (const [index, length] of lengths.entries()) {
    expect(distance(rowOf(ofText!, length - 1), expected[index + 1]!)).toBeLessThan(MAX_DIFFERENCE);
  }
});

test("prompts with the same beginning are computed whole, and many at once", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeRetriever(retrieverFormats[1]!, folder.path);
  const tokens = (length: number): Prompt => ({
    kind: "tokens",
    tokenIds: Array.from({ length }, (_, index) => (index * 5) % 200),
  });
  const outputs = await run(hubEngineConfig(folder.path, cache.path), "token_embed", [40, 40, 60, 20].map(tokens));
  const [first, ...others] = outputs;
  for (const output of others) {
    const numRows = Math.min(output.numPromptTokens, 40);
    expect(output.tokenEmbeddings).toHaveLength(output.numPromptTokens * EMBEDDING_SIZE);
    expect(output.numCachedTokens).toBe(0);
    const length = numRows * EMBEDDING_SIZE;
    expect(
      distance(output.tokenEmbeddings!.subarray(0, length), first!.tokenEmbeddings!.subarray(0, length)),
    ).toBeLessThan(MAX_DIFFERENCE);
  }
});

test("a retrieval model generates no text, and one with another model inside is not served", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeRetriever(retrieverFormats[0]!, folder.path);
  const config = hubEngineConfig(folder.path, cache.path);
  await expect(run(config, "embed", [])).resolves.toEqual([]);
  const generating = createEngine({ ...config, runner: "generate" }, { imageSources: [] });
  await expect(generating.ready).rejects.toMatchObject({
    code: "invalid_configuration",
    setting: "runner",
    message: expect.stringContaining("This checkpoint has no head for text") as string,
  });
  await generating.close();
  const path = join(folder.path, "config.json");
  const settings = JSON.parse(await readFile(path, "utf8")) as { readonly vlm_config: object };
  await writeFile(
    path,
    JSON.stringify({ ...settings, vlm_config: { ...settings.vlm_config, model_type: "paligemma" } }),
  );
  await expect(run(config, "token_embed", [])).rejects.toMatchObject({
    code: "unsupported_model",
    message: expect.stringContaining('is "paligemma"; supported are: qwen2_vl, qwen2_5_vl.') as string,
  });
});

async function run(
  config: EngineOptions,
  task: TaskName,
  prompts: readonly Prompt[],
): Promise<readonly RequestOutput[]> {
  const engine: Engine = createEngine({ ...config, runner: "pooling" }, { imageSources: [createDataUrlImageSource()] });
  try {
    await engine.ready;
    return await Promise.all(prompts.map((prompt, index) => outputOf(engine, String(index), task, prompt)));
  } finally {
    await engine.close();
  }
}

async function outputOf(engine: Engine, requestId: string, task: TaskName, prompt: Prompt): Promise<RequestOutput> {
  const outputs: RequestOutput[] = [];
  const request = { requestId, task, prompt, samplingParams: createSamplingParams({}) };
  for await (const output of engine.generate(request)) outputs.push(output);
  expect(outputs).toHaveLength(1);
  return outputs[0]!;
}

function rowOf({ tokenEmbeddings = new Float32Array() }: RequestOutput, token: number): Float32Array {
  return tokenEmbeddings.subarray(token * EMBEDDING_SIZE, (token + 1) * EMBEDDING_SIZE);
}

function project(state: Float32Array, weight: Float32Array, bias: Float32Array): Float32Array {
  return bias.map((value, row) =>
    state.reduce((sum, number, column) => sum + number * weight[row * state.length + column]!, value),
  );
}

function distance(left: Float32Array, right: Float32Array): number {
  return left.reduce((largest, value, index) => Math.max(largest, Math.abs(value - right[index]!)), 0);
}
