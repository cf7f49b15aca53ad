/**
 * Engines that score pairs: a score is what the rows of the head, or the checkpoint's own layer, make of the states that
 * an engine for embeddings returns.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { Engine, EngineOptions, GenerationRequest, RequestOutput } from "../../../engine/index.ts";
import { hubCases, hubMessages, writeHubCheckpoint, type HubCase } from "../../support/checkpoints/hub-checkpoints.ts";
import { encodeWithHeader } from "../../support/checkpoints/safetensors-writer.ts";
import { dot, readRows, readSafetensors } from "../../support/checkpoints/stored-rows.ts";
import type { TensorEntry } from "../../support/checkpoints/stored-rows.ts";
import { hubEngineConfig, hubModelLen } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Tokens of the tiny vocabularies. */
const classes = ["a", "b"];
/** Different orders of float32 additions. */
const MAX_DIFFERENCE = 1e-4;

/** By checkpoint: the tensor of the head. Gemma 3 bounds its logits, which no smaller ones show. */
const heads = {
  qwen3: "model.embed_tokens.weight",
  "qwen3-vl": "model.language_model.embed_tokens.weight",
  "llava-1.5": "language_model.lm_head.weight",
};

const variants = (["slots", "paged"] as const).flatMap((kvLayout) =>
  Object.entries(heads).map(([name, head]) => ({ name, head, kvLayout })),
);

test.for(variants)("$name over $kvLayout scores by two rows of its head", async ({ name, head, kvLayout }) => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v5", folder.path);
  const config = { ...hubEngineConfig(folder.path, cache.path), kvLayout, maxModelLen: hubModelLen(name) };
  const rows = await readRows(join(folder.path, "model.safetensors"), head);
  const [no, yes] = (await tokenIdsOf(folder.path, classes)).map((tokenId) => rows[tokenId]!);
  const cases = hubCases(name).slice(0, 2);
  const states = await outputsOf(config, "embed", cases);
  const scores = await outputsOf({ ...config, classifierFromToken: classes }, "score", cases);
  const single = await outputsOf({ ...config, classifierFromToken: classes.slice(1) }, "score", cases);
  for (const [index, { embedding = new Float32Array() }] of states.entries()) {
    const expected = dot(yes!, embedding) - dot(no!, embedding);
    expect(Math.abs(scores[index]!.score! - expected)).toBeLessThan(MAX_DIFFERENCE);
    expect(Math.abs(single[index]!.score! - dot(yes!, embedding))).toBeLessThan(MAX_DIFFERENCE);
    expect(scores[index]).toMatchObject({ text: "", tokenIds: [], finishReason: "stop", numOutputTokens: 0 });
  }
});

test("a classifier scores by its own layer", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("qwen3", "v5", folder.path);
  const config = hubEngineConfig(folder.path, cache.path);
  const cases = hubCases("qwen3").slice(0, 2);
  const states = await outputsOf(config, "embed", cases);
  const { embedding: first = new Float32Array() } = states[0]!;
  const layer = Float32Array.from(first, (_, index) => Math.sin(index));
  await addTensor(join(folder.path, "model.safetensors"), "score.weight", [1, layer.length], layer);
  const configPath = join(folder.path, "config.json");
  const settings = JSON.parse(await readFile(configPath, "utf8")) as object;
  await writeFile(configPath, JSON.stringify({ ...settings, architectures: ["Qwen3ForSequenceClassification"] }));
  const scores = await outputsOf(config, "score", cases);
  for (const [index, { embedding = new Float32Array() }] of states.entries()) {
    expect(Math.abs(scores[index]!.score! - dot(layer, embedding))).toBeLessThan(MAX_DIFFERENCE);
  }
});

test("a request for something else is rejected", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("qwen3", "v5", folder.path);
  const config = { ...hubEngineConfig(folder.path, cache.path), classifierFromToken: classes };
  const cases = hubCases("qwen3").slice(0, 1);
  await using engine = poolingEngine(config);
  await engine.ready;
  expect(engine.modelInfo).toMatchObject({ task: "score", embeddingSize: null });
  for (const [task, message] of [
    ["generate", "This model scores pairs of a query and a document and generates no text: the runner is pooling."],
    ["embed", "This model scores pairs of a query and a document and computes no embeddings: the runner is pooling."],
    ["rank", 'task is "rank"; expected "generate", "embed", "token_embed", "score".'],
  ] as const) {
    await expect(run(engine, task as "embed", cases[0]!)).rejects.toMatchObject({ code: "invalid_argument", message });
  }
});

function poolingEngine(config: EngineOptions): Engine & AsyncDisposable {
  const engine = createEngine({ ...config, runner: "pooling" }, { imageSources: [createDataUrlImageSource()] });
  return Object.assign(engine, { [Symbol.asyncDispose]: () => engine.close() });
}

async function outputsOf(
  config: EngineOptions,
  task: "embed" | "score",
  cases: readonly HubCase[],
): Promise<readonly RequestOutput[]> {
  await using engine = poolingEngine(config);
  await engine.ready;
  return await Promise.all(cases.map((golden) => run(engine, task, golden)));
}

async function run(engine: Engine, task: "embed" | "score", golden: HubCase): Promise<RequestOutput> {
  const request: GenerationRequest = {
    requestId: golden.name,
    prompt: { kind: "chat", messages: await hubMessages(golden), addGenerationPrompt: true },
    samplingParams: createSamplingParams({}),
    task,
  };
  const outputs: RequestOutput[] = [];
  for await (const output of engine.generate(request)) outputs.push(output);
  expect(outputs).toHaveLength(1);
  return outputs[0]!;
}

async function addTensor(path: string, name: string, shape: readonly number[], values: Float32Array): Promise<void> {
  const { file, start, header } = await readSafetensors(path);
  const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  const numBytes = file.byteLength - start;
  const entry: TensorEntry = { dtype: "F32", shape, data_offsets: [numBytes, numBytes + bytes.byteLength] };
  await writeFile(path, encodeWithHeader({ ...header, [name]: entry }, [file.subarray(start), bytes]));
}

async function tokenIdsOf(folder: string, tokens: readonly string[]): Promise<number[]> {
  const { model } = JSON.parse(await readFile(join(folder, "tokenizer.json"), "utf8")) as {
    readonly model: { readonly vocab: Readonly<Record<string, number>> };
  };
  return tokens.map((token) => model.vocab[token]!);
}
