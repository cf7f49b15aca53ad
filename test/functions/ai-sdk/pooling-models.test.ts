/** Engines that pool, called by the Vercel AI SDK. */
import { readFile } from "node:fs/promises";
import { embed, embedMany, rerank } from "ai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine } from "../../../engine/index.ts";
import type { Engine, EngineOptions } from "../../../engine/index.ts";
import { foveaEmbedding, foveaReranker } from "../../../functions/ai-sdk/language-model.ts";
import { writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { retrieverFormats, writeRetriever } from "../../support/checkpoints/retriever-checkpoint.ts";
import { hubEngineConfig } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const MAX_NUM_SEQUENCES = 3;
const documents = ["a circle", "a blue square", "nothing", "a star", "a red circle"];

let folders: readonly TemporaryFolder[];
let embedder: Engine;
let reranker: Engine;
let retriever: Engine;

beforeAll(async () => {
  const [plain, retrieval, cache] = await Promise.all([0, 1, 2].map(() => createTemporaryFolder()));
  folders = [plain!, retrieval!, cache!];
  await writeHubCheckpoint("qwen3-vl", "v5", plain!.path);
  await writeRetriever(retrieverFormats[1]!, retrieval!.path);
  const start = (model: string, options: EngineOptions = {}): Engine =>
    createEngine(
      {
        ...hubEngineConfig(model, cache!.path),
        runner: "pooling",
        maxModelLen: 512,
        maxNumSequences: MAX_NUM_SEQUENCES,
        maxNumWaiting: 0,
        ...options,
      },
      { imageSources: [createDataUrlImageSource()] },
    );
  embedder = start(plain!.path);
  reranker = start(plain!.path, { classifierFromToken: ["a", "b"] });
  retriever = start(retrieval!.path);
});

afterAll(async () => {
  await Promise.all([embedder, reranker, retriever].map((engine) => engine.close()));
  for (const folder of folders) await folder[Symbol.asyncDispose]();
});

test("texts get embeddings of length 1, more of them than can wait", async () => {
  const model = foveaEmbedding(embedder, { modelId: "embedder" });
  const { embeddings, usage } = await embedMany({ model, values: documents });
  expect(embeddings).toHaveLength(documents.length);
  for (const vector of embeddings) expect(Math.hypot(...vector)).toBeCloseTo(1, 5);
  expect(usage.tokens).toBeGreaterThan(documents.length);
  const { embedding } = await embed({ model, value: documents[3]! });
  expect(embedding).toEqual(embeddings[3]!.map((value) => expect.closeTo(value, 4) as number));
  const short = await embed({ model, value: "a", providerOptions: { fovea: { dimensions: 4 } } });
  expect(short.embedding).toHaveLength(4);
});

describe("rerank", () => {
  test.for(["reranker", "embedder", "retriever"] as const)("by the scores of a %s", async (name) => {
    const model = foveaReranker({ reranker, embedder, retriever }[name]);
    const { ranking } = await rerank({ model, query: "What is red?", documents, topN: 4 });
    expect(ranking).toHaveLength(4);
    expect(new Set(ranking.map(({ originalIndex }) => originalIndex)).size).toBe(4);
    const scores = ranking.map(({ score }) => score);
    expect(scores).toEqual(scores.toSorted((left, right) => right - left));
    for (const { originalIndex, document } of ranking) expect(document).toBe(documents[originalIndex]);
  });

  test("takes pictures, and other objects as JSON", async () => {
    const path = new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url);
    const image = `data:image/png;base64,${await readFile(path, "base64")}`;
    const objects = [{ image }, { text: "a circle", image }, { text: "a circle" }, { name: "circle", sides: 0 }];
    const model = foveaReranker(reranker);
    const { ranking } = await rerank({ model, query: "What is red?", documents: objects });
    expect(new Set(ranking.map(({ score }) => score)).size).toBe(4);
    const asText = await rerank({ model, query: "What is red?", documents: [JSON.stringify(objects[3])] });
    const ofObject = ranking.find(({ originalIndex }) => originalIndex === 3)!;
    expect(asText.ranking[0]!.score).toBeCloseTo(ofObject.score, 4);
  });

  test("follows an instruction", async () => {
    const model = foveaReranker(reranker);
    const scoreWith = async (providerOptions: { readonly fovea?: { readonly instruction: string } }) => {
      const { ranking } = await rerank({ model, query: "red", documents: ["a"], providerOptions });
      return ranking[0]!.score;
    };
    expect(await scoreWith({ fovea: { instruction: "Find its name." } })).not.toBeCloseTo(await scoreWith({}), 4);
  });
});

test("wrong calls are rejected with the reason, and an aborted one with its signal's", async () => {
  await expect(foveaEmbedding(reranker).doEmbed({ values: ["a"] })).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("computes no embeddings") as string,
  });
  await expect(foveaEmbedding(embedder).doEmbed({ values: ["a"], dimensions: 1000 })).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("dimensions is 1000") as string,
  });
  const reason = new Error("enough");
  await expect(
    foveaReranker(reranker).doRerank({
      query: "a",
      documents: { type: "text", values: documents },
      abortSignal: AbortSignal.abort(reason),
    }),
  ).rejects.toBe(reason);
  // Nothing of it is left in the engine.
  const { ranking } = await rerank({ model: foveaReranker(reranker), query: "a", documents });
  expect(ranking).toHaveLength(documents.length);
});
