/** Engines that pool, as models of the Vercel AI SDK for `embed`, `embedMany` and `rerank`. */
import { randomUUID } from "node:crypto";
import type { EmbeddingModelV4, RerankingModelV4, RerankingModelV4CallOptions } from "@ai-sdk/provider";

import { defaultVideoLimits, EngineError } from "../../engine/index.ts";
import type { Engine, GenerationRequest, RequestOutput } from "../../engine/index.ts";
import { embeddingKind } from "../generation/embeddings/embedding-kinds.ts";
import type { CommonFields, GenerationKind } from "../generation/generation-kind.ts";
import type { Generation } from "../generation/generations.ts";
import { modelFormatsOf } from "../generation/parsed-output/model-formats.ts";
import type { RequestDefaults } from "../generation/request-options.ts";
import { parseFields } from "../generation/schemas/parse-fields.ts";
import { rerankKind } from "../generation/scores/score-kinds.ts";
import { HttpError } from "../http/errors.ts";
import { asCallError, waitUntilReady } from "./engine-calls.ts";

export interface PoolingModelOptions {
  /** The model's name in results and telemetry. Default `fovea`. */
  readonly modelId?: string;
}

/**
 * A model for `embed` and `embedMany`, of an engine that computes embeddings. Calls wait until the engine is ready, and
 * run as many texts at once as it has sequences. The caller closes the engine.
 *
 * A call rejects with APICallError if the queue is full, which the AI SDK retries, EngineError for every other rejection,
 * and the reason of its signal when that aborts.
 */
export function foveaEmbedding(engine: Engine, { modelId = "fovea" }: PoolingModelOptions = {}): EmbeddingModelV4 {
  return {
    specificationVersion: "v4",
    provider: "fovea",
    modelId,
    maxEmbeddingsPerCall: 2048,
    supportsParallelCalls: true,
    async doEmbed({ values, dimensions, abortSignal, providerOptions }) {
      const body = { ...providerOptions?.["fovea"], input: values, ...(dimensions !== undefined && { dimensions }) };
      const answer = (await answerOf(embeddingKind, body, engine, abortSignal)) as EmbeddingAnswer;
      const embeddings = answer.data.map(({ embedding }) => embedding);
      return { embeddings, usage: { tokens: answer.usage.prompt_tokens }, warnings: [] };
    },
  };
}

/**
 * A model for `rerank`, of an engine that scores pairs or computes embeddings. Documents are texts, or objects with
 * `text`, `image` (a reference for the engine's image sources) or both; any other object is written as JSON. Rejects like
 * the model for embeddings.
 */
export function foveaReranker(engine: Engine, { modelId = "fovea" }: PoolingModelOptions = {}): RerankingModelV4 {
  return {
    specificationVersion: "v4",
    provider: "fovea",
    modelId,
    async doRerank({ query, documents, topN, abortSignal, providerOptions }) {
      const body = {
        ...providerOptions?.["fovea"],
        query,
        documents: documents.values.map(toItem),
        return_documents: false,
        ...(topN !== undefined && { top_n: topN }),
      };
      const answer = (await answerOf(rerankKind, body, engine, abortSignal)) as RerankAnswer;
      const ranking = answer.results.map(({ index, relevance_score: relevanceScore }) => ({ index, relevanceScore }));
      return { ranking, response: { id: answer.id, timestamp: new Date(), modelId }, warnings: [] };
    },
  };
}

interface EmbeddingAnswer {
  readonly data: readonly { readonly embedding: number[] }[];
  readonly usage: { readonly prompt_tokens: number };
}

interface RerankAnswer {
  readonly id: string;
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
}

function toItem(value: RerankingModelV4CallOptions["documents"]["values"][number]): unknown {
  if (typeof value === "string") return value;
  const names = Object.keys(value);
  const isItem = names.length > 0 && names.every((name) => ["text", "image", "content"].includes(name));
  return isItem ? value : JSON.stringify(value);
}

/** The answer that the HTTP service would give. */
async function answerOf<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  body: object,
  engine: Engine,
  signal: AbortSignal | undefined,
): Promise<object> {
  await waitUntilReady(engine, signal);
  const id = randomUUID();
  try {
    const fields = parseFields(kind.schema, body);
    const requests = kind.toRequests(id, fields, defaultsOf(engine));
    const model = { ...modelFormatsOf(engine), defaultSamplingParams: {} };
    return await kind.toAnswer({ id, created: 0, model: "" }, inTurns(engine, requests, signal), fields, model);
  } catch (error) {
    if (!(error instanceof HttpError)) throw asCallError(error, signal);
    throw new EngineError("invalid_argument", error.message, { cause: error });
  }
}

function defaultsOf(engine: Engine): RequestDefaults {
  return {
    task: engine.modelInfo?.task ?? null,
    embeddingSize: engine.modelInfo?.embeddingSize ?? null,
    formats: modelFormatsOf(engine),
    maxLogprobs: 0,
    inlineImages: "off",
    videoSampling: {},
    maxVideoFrames: defaultVideoLimits.maxVideoFrames,
    samplingParams: {},
    tenant: "",
    priority: 0,
  };
}

/** In order. As many requests run as the engine has sequences. They end with the iteration. */
async function* inTurns(
  engine: Engine,
  requests: readonly GenerationRequest[],
  signal: AbortSignal | undefined,
): AsyncGenerator<Generation> {
  const maxRunning = engine.modelInfo?.maxNumSequences ?? 1;
  const ended = new AbortController();
  const either = signal === undefined ? ended.signal : AbortSignal.any([signal, ended.signal]);
  const running: Promise<RequestOutput>[] = [];
  try {
    for (const index of requests.keys()) {
      while (running.length < requests.length && running.length < index + maxRunning) {
        const output = lastOutput(engine, requests[running.length]!, either);
        // It is awaited in its turn.
        output.catch(() => {});
        running.push(output);
      }
      yield { index, output: await running[index]! };
    }
  } finally {
    ended.abort(new EngineError("aborted", "The call is over."));
    await Promise.allSettled(running);
  }
}

async function lastOutput(engine: Engine, request: GenerationRequest, signal: AbortSignal): Promise<RequestOutput> {
  let last: RequestOutput | null = null;
  for await (const output of engine.generate(request, { signal })) last = output;
  if (last === null) throw new EngineError("internal", "A request ended without an output.");
  return last;
}
