/** A service that pools, asked by clients for the embeddings of texts and of conversations with pictures. */
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { createOpenAI } from "@ai-sdk/openai";
import { OpenAIEmbeddings } from "@langchain/openai";
import { embedMany } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { writeHubCheckpoint } from "../support/checkpoints/hub-checkpoints.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const EMBEDDING_SIZE = 64;
const MAX_NUM_SEQS = 4;

let folder: TemporaryFolder;
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  await writeHubCheckpoint("qwen3-vl", "v5", folder.path);
  service = await startService({
    MODEL: folder.path,
    SERVED_MODEL_NAME: "embedder",
    RUNNER: "pooling",
    MAX_NUM_SEQS: String(MAX_NUM_SEQS),
    MAX_NUM_WAITING: "2",
  });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

async function post(body: object, path = "/v1/embeddings"): Promise<{ status: number; body: AnyAnswer }> {
  const response = await fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as AnyAnswer };
}

interface AnyAnswer {
  readonly object?: string;
  readonly data: readonly { readonly index: number; readonly embedding: number[] }[];
  readonly usage: OpenAI.CompletionUsage;
  readonly error?: { readonly message: string; readonly param: string | null };
}

async function vectorsOf(body: object): Promise<number[][]> {
  const answer = await post(body);
  expect(answer).toMatchObject({ status: 200, body: { object: "list" } });
  return answer.body.data.map(({ embedding }) => embedding);
}

/** Other batches and reused prefixes add floats in another order. */
const near = (vectors: readonly (readonly number[])[]): unknown[][] =>
  vectors.map((vector) => vector.map((value) => expect.closeTo(value, 4) as unknown));

const lengthOf = (vector: readonly number[]): number => Math.hypot(...vector);

describe("the openai client", () => {
  test("gets the same numbers in base64, which it asks for itself, and as a list", async () => {
    const input = ["a red circle", "a blue square"];
    const { data, usage, model } = await client.embeddings.create({ model: "embedder", input });
    expect(model).toBe("embedder");
    expect(data.map(({ index, object }) => [index, object])).toEqual([
      [0, "embedding"],
      [1, "embedding"],
    ]);
    const asLists = await client.embeddings.create({ model: "embedder", input, encoding_format: "float" });
    expect(data.map(({ embedding }) => embedding)).toEqual(near(asLists.data.map(({ embedding }) => embedding)));
    expect(usage.total_tokens).toBe(usage.prompt_tokens);
    expect(usage.prompt_tokens).toBeGreaterThan(2);
    for (const { embedding } of data) {
      expect(embedding).toHaveLength(EMBEDDING_SIZE);
      expect(lengthOf(embedding)).toBeCloseTo(1, 5);
    }
  });

  test("gets the first numbers, with length 1", async () => {
    const whole = await client.embeddings.create({ model: "embedder", input: "a star" });
    const part = await client.embeddings.create({ model: "embedder", input: "a star", dimensions: 8 });
    const first = whole.data[0]!.embedding.slice(0, 8);
    const length = lengthOf(first);
    const [{ embedding }] = part.data as [OpenAI.Embedding];
    expect(embedding).toHaveLength(8);
    for (const [index, value] of first.entries()) expect(embedding[index]).toBeCloseTo(value / length, 5);
  });
});

test("the clients of Vercel and LangChain get the embeddings", async () => {
  const values = ["a red circle", "a blue square"];
  const expected = await vectorsOf({ input: values });
  const provider = createOpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none" });
  const { embeddings } = await embedMany({ model: provider.embeddingModel("embedder"), values });
  expect(embeddings).toEqual(near(expected));
  const langchain = new OpenAIEmbeddings({
    model: "embedder",
    apiKey: "none",
    configuration: { baseURL: `${service.baseUrl}/v1` },
  });
  expect(await langchain.embedDocuments(values)).toEqual(near(expected));
});

test("tokens and texts with the same tokens have the same embedding", async () => {
  const { body } = await post({ prompt: "a red circle" }, "/tokenize");
  const { tokens } = body as unknown as { readonly tokens: readonly number[] };
  expect(await vectorsOf({ input: tokens })).toEqual(near(await vectorsOf({ input: "a red circle" })));
});

test("more texts than can run or wait are embedded in turns, in order", async () => {
  const texts = Array.from({ length: 40 }, (_, index) => `text ${index % 7}`);
  const vectors = await vectorsOf({ input: texts });
  expect(vectors).toHaveLength(texts.length);
  expect(vectors).toEqual(near(vectors.map((_, index) => vectors[index % 7]!)));
  expect(new Set(vectors.map(([first]) => first!.toFixed(4))).size).toBe(7);
});

test("a conversation is embedded with its pictures", async () => {
  const [first, second] = await Promise.all(["scene.png", "label.png"].map(pictureMessages));
  const vectors = await Promise.all([first, second, first].map((messages) => vectorsOf({ messages })));
  expect(vectors.map((list) => list.length)).toEqual([1, 1, 1]);
  const [[left], [right], [again]] = vectors as [[number[]], [number[]], [number[]]];
  expect([left]).toEqual(near([again]));
  expect(Math.max(...left.map((value, place) => Math.abs(value - right[place]!)))).toBeGreaterThan(0.01);
  // vLLM's forms of the end of a prompt.
  const withTurn = await vectorsOf({ messages: first, add_generation_prompt: true });
  expect(withTurn[0]).not.toEqual(left);
  const { body } = await post({ messages: first, normalize: false });
  expect(lengthOf(body.data[0]!.embedding)).not.toBeCloseTo(1, 1);
  expect(body.usage.prompt_tokens_details).toMatchObject({ multimodal_tokens: { image: expect.any(Number) } });
});

async function pictureMessages(name: string): Promise<object[]> {
  const path = new URL(`../../models/fovea-shapes/examples/${name}`, import.meta.url);
  const url = `data:image/png;base64,${(await readFile(path)).toString("base64")}`;
  return [
    { role: "system", content: "Represent the user's input." },
    { role: "user", content: [{ type: "image_url", image_url: { url } }] },
  ];
}

test.for<[object, string | null, string]>([
  [{}, "input", "input"],
  [{ input: [] }, "input", "input must contain at least one prompt."],
  [{ input: "a", dimensions: 65 }, "dimensions", "dimensions is 65; the embeddings of this model have 64 numbers."],
  [{ input: "a", dimensions: 0 }, "dimensions", "dimensions must be at least 1."],
  [{ input: "a", encoding_format: "hex" }, "encoding_format", "encoding_format must be float or base64."],
  [{ input: "a", stream: true }, "stream", "stream is not supported by this service; leave it out."],
  [{ input: [[1, 100_000]] }, "input", "Token id 100000 is outside the vocabulary"],
  [{ messages: [] }, "messages", "messages must contain at least one message."],
])("%j is rejected", async ([body, param, message]) => {
  const answer = await post(body);
  expect(answer).toMatchObject({ status: 400, body: { error: { param } } });
  expect(answer.body.error!.message).toContain(message);
});

test.for<[string, object]>([
  ["/v1/chat/completions", { messages: [{ role: "user", content: "Hello" }] }],
  ["/v1/completions", { prompt: "Hello" }],
  ["/v1/responses", { input: "Hello" }],
  ["/v1/messages", { messages: [{ role: "user", content: "Hello" }], max_tokens: 4 }],
])("%s is rejected: nothing is generated", async ([path, body]) => {
  const answer = await post(body, path);
  expect(answer.status).toBe(400);
  expect(answer.body.error!.message).toBe(
    "This model computes embeddings and generates no text: the runner is pooling. RUNNER sets it.",
  );
});

test("SageMaker's route answers with embeddings", async () => {
  const { status, body } = await post({ input: "a red circle" }, "/invocations");
  expect(status).toBe(200);
  expect(body.data.map(({ embedding }) => embedding)).toEqual(near(await vectorsOf({ input: "a red circle" })));
});

test("there is no page for conversations", async () => {
  const headers = { accept: "text/html" };
  const [page, start] = await Promise.all(
    ["/playground", "/"].map((path) => fetch(`${service.baseUrl}${path}`, { headers })),
  );
  expect(page!.status).toBe(404);
  expect(await start!.json()).toMatchObject({ status: "ready", routes: { embeddings: "/v1/embeddings" } });
});

test("batches have embeddings", async () => {
  const lines = [
    { input: "a red circle", dimensions: 4 },
    { messages: await pictureMessages("scene.png"), dimensions: 4 },
  ].map((body, index) => ({ custom_id: `line-${index}`, method: "POST", url: "/v1/embeddings", body }));
  const file = new File([lines.map((line) => JSON.stringify(line)).join("\n")], "lines.jsonl");
  const { id } = await client.files.create({ file, purpose: "batch" });
  let batch = await client.batches.create({
    input_file_id: id,
    endpoint: "/v1/embeddings",
    completion_window: "24h",
  });
  while (batch.status !== "completed") {
    expect(["validating", "in_progress", "finalizing"]).toContain(batch.status);
    await delay(50);
    batch = await client.batches.retrieve(batch.id);
  }
  const content = await (await client.files.content(batch.output_file_id!)).text();
  const answers = content
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { readonly response: { readonly body: AnyAnswer } });
  expect(answers.map(({ response }) => response.body.data[0]!.embedding.length)).toEqual([4, 4]);
});
