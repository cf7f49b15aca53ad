/** Services that score pairs, asked for the scores of texts and pictures: a reranker, and a model for embeddings. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { writeHubCheckpoint } from "../support/checkpoints/hub-checkpoints.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

let folder: TemporaryFolder;
let reranker: RunningService;
let embedder: RunningService;
let picture: string;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  await writeHubCheckpoint("qwen3-vl", "v5", folder.path);
  const settings = { MODEL: folder.path, SERVED_MODEL_NAME: "ranker", RUNNER: "pooling", MAX_NUM_SEQS: "4" };
  reranker = await startService({ ...settings, CLASSIFIER_FROM_TOKEN: "a,b" });
  embedder = await startService(settings);
  const example = new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url);
  picture = `data:image/png;base64,${await readFile(example, "base64")}`;
});

afterAll(async () => {
  await reranker[Symbol.asyncDispose]();
  await embedder[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

interface AnyAnswer {
  readonly id: string;
  readonly data: readonly { readonly index: number; readonly score: number; readonly embedding: number[] }[];
  readonly results: readonly { readonly index: number; readonly document?: object; readonly relevance_score: number }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
  readonly error?: { readonly message: string; readonly param: string | null };
}

async function post(path: string, body: object, service = reranker): Promise<{ status: number; body: AnyAnswer }> {
  const response = await fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as AnyAnswer };
}

/** Scores in the order of the documents. */
async function scoresOf(body: object, service = reranker): Promise<number[]> {
  const answer = await post("/score", body, service);
  expect(answer).toMatchObject({ status: 200, body: { object: "list" } });
  return answer.body.data.map(({ score }) => score);
}

/** Other batches and reused prefixes add floats in another order. */
const near = (scores: readonly number[]): unknown[] => scores.map((score) => expect.closeTo(score, 4) as unknown);

const query = "What is red?";
const documents = ["a circle", "a blue square", "nothing"];

describe("/rerank", () => {
  test.for(["/rerank", "/v1/rerank", "/v2/rerank"])("answers at %s with the best documents first", async (path) => {
    const { status, body } = await post(path, { model: "ranker", query, documents });
    expect(status).toBe(200);
    expect(body).toMatchObject({ id: expect.stringMatching(/^rerank-/) as string, model: "ranker" });
    expect(new Set(body.results.map(({ index }) => index))).toEqual(new Set([0, 1, 2]));
    const scores = body.results.map(({ relevance_score: score }) => score);
    expect(scores).toEqual(scores.toSorted((left, right) => right - left));
    expect(new Set(scores).size).toBe(3);
    for (const score of scores) expect(score > 0 && score < 1).toBe(true);
    for (const { index, document } of body.results) expect(document).toEqual({ text: documents[index] });
    expect(body.usage.total_tokens).toBe(body.usage.prompt_tokens);
  });

  test("gives as many as asked for, and leaves documents out on request", async () => {
    const all = await post("/rerank", { query, documents });
    const { body } = await post("/rerank", { query, documents, top_n: 2, return_documents: false });
    const best = all.body.results.slice(0, 2);
    expect(body.results.map(({ index }) => index)).toEqual(best.map(({ index }) => index));
    expect(body.results.map(({ relevance_score: score }) => score)).toEqual(
      near(best.map(({ relevance_score: score }) => score)),
    );
    expect(body.results.some((result) => "document" in result)).toBe(false);
  });

  test("takes pictures in the forms of vLLM and Jina", async () => {
    const part = { type: "image_url", image_url: { url: picture } };
    const both = [part, { type: "text", text: "x" }];
    const given = [
      { content: [part] },
      { image: picture },
      part,
      { content: both },
      { image: picture, text: "x" },
      { text: "x" },
    ];
    const { body } = await post("/rerank", { query, documents: given });
    const byIndex = body.results.toSorted((left, right) => left.index - right.index);
    const [first, ...others] = byIndex.map(({ relevance_score: score }) => score);
    expect(others.slice(0, 2)).toEqual(near([first!, first!]));
    expect(others[3]).toBeCloseTo(others[2]!, 4);
    expect(byIndex.map(({ document }) => document)).toEqual([
      { multi_modal: [part] },
      { image: picture },
      part,
      { multi_modal: both },
      { image: picture, text: "x" },
      { text: "x" },
    ]);
  });

  test("follows an instruction", async () => {
    const plain = await scoresOf({ queries: query, documents: "a" });
    const told = await scoresOf({ queries: query, documents: "a", instruction: "Find the name." });
    expect(told).not.toEqual(near(plain));
    expect(await scoresOf({ queries: query, documents: "a", instruct: "Find the name." })).toEqual(near(told));
  });
});

describe("/score", () => {
  test.for([
    ["queries", "documents"],
    ["queries", "items"],
    ["data_1", "data_2"],
    ["text_1", "text_2"],
  ] as const)("takes %s and %s: one with all, or one each", async ([first, second]) => {
    const all = await scoresOf({ [first]: query, [second]: documents });
    expect(all).toHaveLength(3);
    expect(await scoresOf({ [first]: [query, query, query], [second]: documents })).toEqual(near(all));
    expect(await scoresOf({ [first]: [query], [second]: documents[1] })).toEqual(near(all.slice(1, 2)));
    const answer = await post("/v1/score", { [first]: [query, query], [second]: documents });
    expect(answer).toMatchObject({
      status: 400,
      body: { error: { param: second, message: expect.stringContaining(`entries as ${first}, 2`) as string } },
    });
  });

  test("gives the logarithm of the odds without the activation", async () => {
    const { body } = await post("/score", { queries: query, documents, use_activation: false });
    const activated = body.data.map(({ score }) => 1 / (1 + Math.exp(-score)));
    expect(await scoresOf({ queries: query, documents })).toEqual(near(activated));
  });
});

describe("a model for embeddings", () => {
  test("scores texts by the cosine of the vectors of /v1/embeddings", async () => {
    const { body } = await post("/v1/embeddings", { input: [query, ...documents] }, embedder);
    const [ofQuery, ...ofDocuments] = body.data.map(({ embedding }) => embedding);
    const cosines = ofDocuments.map((vector) =>
      vector.reduce((sum, value, index) => sum + value * ofQuery![index]!, 0),
    );
    expect(await scoresOf({ queries: query, documents }, embedder)).toEqual(near(cosines));
  });

  test("scores all as messages of a user if one has a picture", async () => {
    const content = [{ type: "image_url", image_url: { url: picture } }];
    const vectors = await Promise.all(
      [query, content].map(async (of) => {
        const { body } = await post("/v1/embeddings", { messages: [{ role: "user", content: of }] }, embedder);
        return body.data[0]!.embedding;
      }),
    );
    const cosine = vectors[0]!.reduce((sum, value, index) => sum + value * vectors[1]![index]!, 0);
    expect(await scoresOf({ queries: query, documents: [{ content }] }, embedder)).toEqual(near([cosine]));
  });
});

test("/invocations answers bodies of all kinds", async () => {
  expect((await post("/invocations", { query, documents })).body.results).toHaveLength(3);
  expect((await post("/invocations", { text_1: query, text_2: documents })).body.data).toHaveLength(3);
  expect((await post("/invocations", { input: "a" }, embedder)).body.data[0]!.embedding.length).toBeGreaterThan(8);
});

test("batches take lines for both", async () => {
  const lines = [
    { custom_id: "a", method: "POST", url: "/v1/rerank", body: { query, documents } },
    { custom_id: "b", method: "POST", url: "/v1/rerank", body: { query, documents: [] } },
  ];
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([lines.map((line) => JSON.stringify(line)).join("\n")]), "lines.jsonl");
  const uploaded = await fetch(`${reranker.baseUrl}/v1/files`, { method: "POST", body: form });
  const { id } = (await uploaded.json()) as { readonly id: string };
  const { status, body } = await post("/v1/batches", {
    input_file_id: id,
    endpoint: "/v1/rerank",
    completion_window: "24h",
  });
  expect(status).toBe(200);
  const readBatch = async () => {
    const answer = await fetch(`${reranker.baseUrl}/v1/batches/${body.id}`);
    return (await answer.json()) as { readonly status: string; readonly request_counts: object };
  };
  await expect.poll(async () => (await readBatch()).status).toBe("completed");
  expect((await readBatch()).request_counts).toEqual({ total: 2, completed: 1, failed: 1 });
});

test.for<[string, object, string, string]>([
  ["no query", { documents }, "query", "query must be a string"],
  ["no documents", { query }, "documents", "documents must be a list of strings and objects."],
  ["an empty list", { query, documents: [] }, "documents", "documents must have at least one entry."],
  ["a number", { query, documents: ["a", 5] }, "documents[1]", "documents[1] must be a string"],
  ["an empty object", { query, documents: [{}] }, "documents[0]", "documents[0] must be a string"],
  [
    "an unknown part",
    { query, documents: [{ content: [{ type: "audio" }] }] },
    "documents[0].content[0].type",
    "part type",
  ],
  ["a negative number", { query, documents, top_n: -1 }, "top_n", "top_n must be at least 0"],
  ["a stream", { query, documents, stream: true }, "stream", "stream is not supported"],
  ["truncation", { query, documents, max_tokens_per_doc: 9 }, "max_tokens_per_doc", "send shorter documents"],
  [
    "no picture",
    { query, documents: ["a", { image: "data:image/png;base64,AAAA" }] },
    "documents",
    "are not a picture in a supported format",
  ],
])("%s is rejected", async ([, body, param, message]) => {
  expect(await post("/v1/rerank", body)).toMatchObject({
    status: expect.toBeOneOf([400, 422]) as number,
    body: { error: { param, message: expect.stringContaining(message) as string } },
  });
});

test("a service that scores computes nothing else, and one for text no scores", async () => {
  expect(await post("/v1/embeddings", { input: "a" })).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining("computes no embeddings") as string } },
  });
  await using generator = await startService({});
  expect(await post("/v1/rerank", { query, documents }, generator)).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining("scores no pairs: the runner is generate. RUNNER") as string } },
  });
});
