/** `fovea/ai`: an engine of this process as a model of the Vercel AI SDK. */
import { randomUUID } from "node:crypto";
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4Content,
  LanguageModelV4StreamPart,
  SharedV4Warning,
} from "@ai-sdk/provider";

import type { Engine, RequestOutput } from "../../engine/index.ts";
import type { Generation } from "../generation/generations.ts";
import { modelFormatsOf } from "../generation/parsed-output/model-formats.ts";
import { gatherParsedChoices, parseGenerations } from "../generation/parsed-output/parse-generations.ts";
import type { ParsedChoice } from "../generation/parsed-output/parse-generations.ts";
import type { ParsedGeneration } from "../generation/parsed-output/parsed-delta.ts";
import { asCallError, waitUntilReady } from "./engine-calls.ts";
import { toGenerationRequest } from "./generation-request.ts";
import { finishReasonOf, providerMetadataOf, usageOf } from "./results.ts";
import { streamParts } from "./stream-parts.ts";
import type { ResponseIds } from "./stream-parts.ts";

export { foveaEmbedding, foveaReranker } from "./pooling-models.ts";
export type { PoolingModelOptions } from "./pooling-models.ts";

export interface FoveaModelOptions {
  /** The model's name in results and telemetry. Default `fovea`. */
  readonly modelId?: string;
  /**
   * Schemes of URLs of images, videos and PDF files that the engine's image sources fetch, such as `["https", "s3"]`. The AI SDK
   * downloads those from other http and https URLs itself. Default none.
   */
  readonly imageSchemes?: readonly string[];
}

/**
 * Calls wait until the engine is ready. Unsupported settings are reported in `warnings`. The caller closes the engine.
 *
 * A call of the model rejects with
 *
 * - UnsupportedFunctionalityError for unsupported parts, and for strict tools that the model's format cannot enforce,
 * - APICallError if the queue is full; the AI SDK retries it,
 * - EngineError for every other rejection by the engine,
 * - the reason of its signal when that aborts.
 */
export function fovea(engine: Engine, options: FoveaModelOptions = {}): LanguageModelV4 {
  const { modelId = "fovea", imageSchemes = [] } = options;
  const fetchedUrls = imageSchemes.map((scheme) => new RegExp(`^${scheme.replaceAll(/[.+-]/g, "\\$&")}:`));
  return {
    specificationVersion: "v4",
    provider: "fovea",
    modelId,
    supportedUrls: { "image/*": fetchedUrls, "video/*": fetchedUrls, "application/pdf": fetchedUrls },

    async doGenerate(callOptions) {
      const { generations, warnings, response } = await startGeneration(engine, modelId, callOptions);
      const choices = await gatherParsedChoices(generations);
      const choice = choices[0] ?? null;
      const last = choice?.last ?? null;
      return {
        content: choice === null ? [] : contentOf(choice),
        finishReason: finishReasonOf(choice?.finishReason ?? null),
        usage: usageOf(last, choice?.numReasoningTokens ?? 0),
        providerMetadata: providerMetadataOf(last),
        response,
        warnings,
      };
    },

    async doStream(callOptions) {
      const { outputs, generations, warnings, response } = await startGeneration(engine, modelId, callOptions);
      const { includeRawChunks = false, abortSignal } = callOptions;
      const parts = streamParts(generations, { warnings, response, includeRawChunks, abortSignal });
      const stream = new ReadableStream<LanguageModelV4StreamPart>(
        {
          async pull(controller) {
            const next = await parts.next();
            if (next.done === true) controller.close();
            else controller.enqueue(next.value);
          },
          // At the source: a generator of parts that is waiting, or not started, would not handle `return`.
          async cancel() {
            await outputs.return();
          },
        },
        { highWaterMark: 0 },
      );
      return { stream };
    },
  };
}

function contentOf({ reasoning, content, toolCalls }: ParsedChoice): LanguageModelV4Content[] {
  return [
    ...(reasoning === "" ? [] : [{ type: "reasoning", text: reasoning } as const]),
    ...(content === "" ? [] : [{ type: "text", text: content } as const]),
    ...toolCalls.map(({ id, name, arguments: input }) => {
      return { type: "tool-call", toolCallId: id, toolName: name, input } as const;
    }),
  ];
}

interface StartedGeneration {
  readonly outputs: GeneratedOutputs;
  /** The parsed outputs. */
  readonly generations: AsyncIterable<ParsedGeneration>;
  readonly warnings: SharedV4Warning[];
  readonly response: ResponseIds;
}

/** Outputs whose first one has arrived. */
interface GeneratedOutputs extends AsyncIterableIterator<RequestOutput> {
  /** Aborts the sequence if it still runs. */
  return(): Promise<IteratorResult<RequestOutput>>;
}

/** Resolves with the first output, so that a request that the engine rejects also rejects here, even for streams. */
async function startGeneration(
  engine: Engine,
  modelId: string,
  callOptions: LanguageModelV4CallOptions,
): Promise<StartedGeneration> {
  const { abortSignal } = callOptions;
  await waitUntilReady(engine, abortSignal);
  const { request, parsing, warnings } = toGenerationRequest(
    callOptions,
    engine.modelInfo?.defaultSamplingParams ?? {},
    modelFormatsOf(engine),
  );
  const requestId = randomUUID();
  const response = { id: requestId, timestamp: new Date(), modelId };
  const signal = abortSignal === undefined ? {} : { signal: abortSignal };
  const iterator = engine.generate({ ...request, requestId }, signal)[Symbol.asyncIterator]();
  try {
    const first = await iterator.next();
    const outputs = resume(first, iterator, abortSignal);
    return { outputs, generations: parseGenerations(asGenerations(outputs), parsing), warnings, response };
  } catch (error) {
    throw asCallError(error, abortSignal);
  }
}

async function* asGenerations(outputs: AsyncIterable<RequestOutput>): AsyncGenerator<Generation> {
  for await (const output of outputs) yield { index: 0, output };
}

function resume(
  first: IteratorResult<RequestOutput>,
  iterator: AsyncIterator<RequestOutput>,
  signal: AbortSignal | undefined,
): GeneratedOutputs {
  let pending: IteratorResult<RequestOutput> | null = first;
  const outputs: GeneratedOutputs = {
    [Symbol.asyncIterator]: () => outputs,
    async next() {
      const next = pending;
      pending = null;
      try {
        return next ?? (await iterator.next());
      } catch (error) {
        throw asCallError(error, signal);
      }
    },
    async return() {
      await iterator.return?.();
      return { done: true, value: undefined };
    },
  };
  return outputs;
}
