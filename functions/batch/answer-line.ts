/** Answers batch lines with the code of HTTP requests: the same fields, checks, errors and bodies. */
import { randomUUID } from "node:crypto";

import { EngineError } from "../../engine/index.ts";
import type { Engine, GenerationRequest } from "../../engine/index.ts";
import { chatCompletionKind } from "../generation/chat-completion-kind.ts";
import { completionKind } from "../generation/completion-kind.ts";
import { chatEmbeddingKind, embeddingKind, isConversation } from "../generation/embeddings/embedding-kinds.ts";
import {
  createRequests,
  answeringModelOf,
  maxRunningOf,
  parseBody,
  streamUsageOf,
} from "../generation/generation-kind.ts";
import type { CommonFields, GenerationKind, ParsedBody, RequestConfig } from "../generation/generation-kind.ts";
import { runGenerations } from "../generation/generations.ts";
import type { Generation } from "../generation/generations.ts";
import { responsesKind } from "../generation/responses/responses-kind.ts";
import { rerankKind, scoreKindOf } from "../generation/scores/score-kinds.ts";
import { errorBody } from "../http/error-body.ts";
import type { ErrorBody } from "../http/error-body.ts";
import { toErrorAnswer } from "../http/errors.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import type { Admission, Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import { answerAttributes, requestAttributes, traced } from "../telemetry/generation-attributes.ts";
import type { RequestSpan } from "../telemetry/telemetry.ts";
import type { BatchLine, BatchUrl } from "./batch-line.ts";
import type { LineResponse } from "./result-line.ts";

/** Behind all requests that somebody waits for, even behind those that give themselves a low priority. */
const LINE_PRIORITY = 1_000_000;

export interface AnswerDependencies {
  readonly service: Service;
  /** The service's engine, which must be ready. */
  readonly engine: Engine;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** The tenant of the batch; "" without API keys. */
  readonly tenant: string;
  readonly config: RequestConfig & Pick<Config, "servedModelNames">;
  /** The span of a job, if traces are sent. */
  readonly span?: RequestSpan;
}

export type LineAnswer =
  /** `isTransient`: a picture could not be fetched, and may be later. Default: false. */
  | { readonly kind: "answered"; readonly response: LineResponse; readonly isTransient?: boolean }
  /** The service is full; `response` is the answer that HTTP would give. */
  | { readonly kind: "busy"; readonly response: LineResponse }
  /** The service ended before the answer was complete. The line itself is valid. */
  | { readonly kind: "given up" };

/** A line with a parsed body. */
export interface PreparedLine {
  /** Number of sequences in the engine; 0 for a rejected line. */
  readonly numSequences: number;
  /**
   * Can be called again after `busy`. Its work ends when the signal is aborted; the answer then says nothing. `stream`
   * gets the chunks of a body with `stream: true`, one after the other; the answer is complete all the same.
   */
  readonly answer: (signal?: AbortSignal, stream?: (chunk: object) => Promise<void>) => Promise<LineAnswer>;
}

/** Does not throw errors of the line: they become its answer. */
export function prepareLine(line: BatchLine, dependencies: AnswerDependencies): PreparedLine {
  return preparers[line.url](line, dependencies);
}

const preparers: Readonly<Record<BatchUrl, typeof prepareLine>> = {
  "/v1/chat/completions": (line, dependencies) => prepare(chatCompletionKind, line, dependencies),
  "/v1/completions": (line, dependencies) => prepare(completionKind, line, dependencies),
  "/v1/responses": (line, dependencies) => prepare(responsesKind, line, dependencies),
  "/v1/embeddings": (line, dependencies) =>
    isConversation(line.body)
      ? prepare(chatEmbeddingKind, line, dependencies)
      : prepare(embeddingKind, line, dependencies),
  "/v1/rerank": (line, dependencies) => prepare(rerankKind, line, dependencies),
  "/v1/score": (line, dependencies) => prepare(scoreKindOf(line.body), line, dependencies),
};

function prepare<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  { body, extraArguments }: BatchLine,
  dependencies: AnswerDependencies,
): PreparedLine {
  const { service, engine, config, metrics, tenant, span } = dependencies;
  let parsed: ParsedBody<Fields> | null = null;
  let requests: readonly GenerationRequest[];
  try {
    parsed = parseBody(kind, body, config);
    requests = createRequests(kind, parsed, { engine, config, tenant, extraArguments, priority: LINE_PRIORITY });
  } catch (error) {
    return { numSequences: 0, answer: async () => toAnswer(error, parsed, dependencies) };
  }
  const { fields, head, paths } = parsed;
  span?.setAttributes(requestAttributes(kind, head.model, requests));
  const maxRunning = maxRunningOf(kind, dependencies);
  const numSequences = requests.reduce((sum, { numChoices = 1 }) => sum + numChoices, 0);
  return {
    numSequences: Math.min(numSequences, maxRunning),
    async answer(signal, stream) {
      let admission: Admission | null = null;
      try {
        const observed = span === undefined ? requests : traced(requests, span);
        admission = service.admitBatchLine(signal);
        const generations = runGenerations(admission, observed, withFigures(metrics, span), maxRunning);
        const isStreamed = fields.stream === true && stream !== undefined;
        const complete = isStreamed
          ? replayed(await streamChunks(kind, parsed, generations, { ...dependencies, stream }))
          : generations;
        const answer = await kind.toAnswer(head, complete, fields, answeringModelOf({ engine, config }));
        metrics.addMedia(paths);
        return { kind: "answered", response: { statusCode: 200, requestId: randomUUID(), body: answer } };
      } catch (error) {
        return toAnswer(error, parsed, dependencies);
      } finally {
        admission?.release();
      }
    },
  };
}

/** Metrics that also add a sequence's figures to the span of its job. */
function withFigures(metrics: Metrics, span: RequestSpan | undefined): Metrics {
  if (span === undefined) return metrics;
  return {
    ...metrics,
    observeSequence(figures, seconds) {
      const { numPromptTokens: promptTokens, numOutputTokens: completionTokens, finishReason } = figures;
      span.setAttributes(answerAttributes({ promptTokens, completionTokens, finishReason }));
      metrics.observeSequence(figures, seconds);
    },
  };
}

/** Returns all generations, for the complete answer. */
async function streamChunks<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  { head, fields, paths }: ParsedBody<Fields>,
  generations: AsyncIterable<Generation>,
  {
    engine,
    config,
    stream,
  }: Pick<AnswerDependencies, "engine" | "config"> & { readonly stream: (chunk: object) => Promise<void> },
): Promise<readonly Generation[]> {
  const seen: Generation[] = [];
  const kept = async function* (): AsyncGenerator<Generation> {
    for await (const generation of generations) {
      seen.push(generation);
      yield generation;
    }
  };
  const model = answeringModelOf({ engine, config });
  const describeError = (error: unknown) => toErrorAnswer(error, randomUUID(), paths).body;
  for await (const chunk of kind.toChunks(head, kept(), streamUsageOf(fields), fields, model, describeError)) {
    await stream(chunk);
  }
  return seen;
}

async function* replayed(generations: readonly Generation[]): AsyncGenerator<Generation> {
  yield* generations;
}

function toAnswer(
  error: unknown,
  parsed: ParsedBody<CommonFields> | null,
  { service, engine, logger }: AnswerDependencies,
): LineAnswer {
  const requestId = randomUUID();
  const { status, body } = toErrorAnswer(error, requestId, parsed?.paths);
  const { code, isTransient } = error instanceof EngineError ? error : { code: null, isTransient: false };
  const isDrained = service.givesWorkBack && (code === "not_ready" || code === "closed" || code === "aborted");
  // A stalled step says nothing about the line.
  const isStalled = code === "engine_stalled";
  // Checks the engine itself, because the service may already be draining.
  if (isDrained || isStalled || (engine.state !== "ready" && status >= 500)) return { kind: "given up" };
  if (status === 500) logger.error("A line failed.", { requestId, error });
  const response = { statusCode: status, requestId, body };
  if (code === "queue_full") return { kind: "busy", response };
  if (isTransient) return { kind: "answered", response: asUnavailable(response, body), isTransient };
  return { kind: "answered", response };
}

/** With a status that tells senders to try again, although the request itself names the place that does not work. */
function asUnavailable(response: LineResponse, { error: { code, message, param } }: ErrorBody): LineResponse {
  return { ...response, statusCode: 503, body: errorBody(503, code, message, param) };
}
