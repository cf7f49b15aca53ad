/** A service of a retrieval model, asked for the embeddings of tokens and for scores of pairs. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import { EMBEDDING_SIZE, retrieverFormats, writeRetriever } from "../support/checkpoints/retriever-checkpoint.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

let folder: TemporaryFolder;
let service: RunningService;
let content: readonly object[];

beforeAll(async () => {
  folder = await createTemporaryFolder();
  await writeRetriever(retrieverFormats[1]!, folder.path);
  service = await startService({ MODEL: folder.path, RUNNER: "pooling", MAX_NUM_SEQS: "4" });
  const picture = new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url);
  const url = `data:image/png;base64,${await readFile(picture, "base64")}`;
  content = [
    { type: "image_url", image_url: { url } },
    { type: "text", text: "Describe the image." },
  ];
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

interface AnyAnswer {
  readonly id: string;
  readonly data: readonly { readonly object: string; readonly data: number[][]; readonly score: number }[];
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
  readonly usage: { readonly prompt_tokens: number };
}

async function post(path: string, body: object): Promise<{ status: number; body: AnyAnswer }> {
  const response = await fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as AnyAnswer };
}

async function tokensOf(body: object): Promise<number[][]> {
  const { status, body: answer } = await post("/pooling", body);
  expect(status).toBe(200);
  expect(answer.data).toHaveLength(1);
  return answer.data[0]!.data;
}

const dot = (left: readonly number[], right: readonly number[]): number =>
  left.reduce((sum, value, index) => sum + value * right[index]!, 0);

function maxSimilarity(query: readonly number[][], document: readonly number[][]): number {
  return query.reduce((sum, vector) => sum + Math.max(...document.map((other) => dot(vector, other))), 0);
}

test("/pooling gives an embedding of each token, of length 1", async () => {
  const { body } = await post("/pooling", { input: ["a red circle", "b"] });
  expect(body).toMatchObject({ id: expect.stringMatching(/^pool-/) as string, object: "list" });
  expect(body.data.map(({ object }) => object)).toEqual(["pooling", "pooling"]);
  expect(body.data.reduce((sum, { data }) => sum + data.length, 0)).toBe(body.usage.prompt_tokens);
  for (const vector of body.data.flatMap(({ data }) => data)) {
    expect(vector).toHaveLength(EMBEDDING_SIZE);
    expect(Math.hypot(...vector)).toBeCloseTo(1, 5);
  }
  const short = await tokensOf({ input: "b", dimensions: 3 });
  expect(short.map((vector) => vector.length)).toEqual(short.map(() => 3));
  const plain = await tokensOf({ input: "b", normalize: false });
  expect(Math.hypot(...plain[0]!)).not.toBeCloseTo(1, 2);
});

test("base64 has the same numbers, one token after the other", async () => {
  const lists = await tokensOf({ input: "a red circle" });
  const { body } = await post("/pooling", { input: "a red circle", encoding_format: "base64" });
  const bytes = Buffer.from(body.data[0]!.data as unknown as string, "base64");
  const values = lists.flat();
  expect(bytes.byteLength).toBe(4 * values.length);
  for (const [index, value] of values.entries()) expect(bytes.readFloatLE(4 * index)).toBeCloseTo(value, 4);
});

test("conversations have those of their pictures, too", async () => {
  const tokens = await tokensOf({ messages: [{ role: "user", content }] });
  const without = await tokensOf({ messages: [{ role: "user", content: content.slice(1) }] });
  expect(tokens.length).toBeGreaterThan(without.length + 10);
});

test("scores are the sums of the largest similarities", async () => {
  const query = "a red circle";
  const documents = ["circle", "a blue square", "x"];
  const [ofQuery, ...ofDocuments] = await Promise.all([query, ...documents].map((input) => tokensOf({ input })));
  const expected = ofDocuments.map((document) => expect.closeTo(maxSimilarity(ofQuery!, document), 3) as number);
  const { body } = await post("/score", { queries: query, documents });
  expect(body.data.map(({ score }) => score)).toEqual(expected);
  const each = await post("/score", { queries: [query, query, query], documents });
  expect(each.body.data.map(({ score }) => score)).toEqual(expected);
});

test("/rerank compares a text with pages", async () => {
  const { status, body } = await post("/v1/rerank", { query: "a red circle", documents: [{ content }, "nothing"] });
  expect(status).toBe(200);
  const asMessage = (of: unknown) => tokensOf({ messages: [{ role: "user", content: of }] });
  const [query, page, text] = await Promise.all(["a red circle", content, "nothing"].map(asMessage));
  const scores = new Map(body.results.map(({ index, relevance_score: score }) => [index, score]));
  expect(scores.get(0)).toBeCloseTo(maxSimilarity(query!, page!), 2);
  expect(scores.get(1)).toBeCloseTo(maxSimilarity(query!, text!), 2);
});

test("/invocations gives embeddings of tokens, and /v1/embeddings none", async () => {
  const { body } = await post("/invocations", { input: "b" });
  expect(body.data[0]!.data[0]).toHaveLength(EMBEDDING_SIZE);
  expect(await post("/v1/embeddings", { input: "b" })).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining("computes embeddings of tokens") as string } },
  });
});
