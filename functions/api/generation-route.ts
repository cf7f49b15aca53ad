/** What the routes that generate text have in common, from the body to the answer. */
import { randomUUID } from "node:crypto";
import type { Context, Handler } from "hono";
import type { z } from "zod";

import type { GenerationRequest } from "../../engine/index.ts";
import type { Metrics } from "../metrics.ts";
import { clientGone } from "../service.ts";
import type { Admission } from "../service.ts";
import type { AppDependencies } from "./app-dependencies.ts";
import type { AnswerHead, StreamUsageOptions } from "./chat-answer.ts";
import { HttpError, toErrorAnswer } from "./errors.ts";
import { runGenerations } from "./generations.ts";
import type { Generation } from "./generations.ts";
import { readJsonObject } from "./json-body.ts";
import type { AppEnvironment } from "./request-trace.ts";
import { parseFields } from "./schemas/parse-fields.ts";
import { refuseUnservedFields } from "./schemas/unserved-fields.ts";
import type { UnservedFields } from "./schemas/unserved-fields.ts";
import { createEventStream, eventStreamHeaders } from "./sse.ts";
import type { RequestDefaults } from "./to-engine-request.ts";
import type { RequestPaths } from "./wire-parameter.ts";

const DEFAULT_KEEP_ALIVE_MS = 10_000;

interface CommonFields {
  readonly model?: string | null | undefined;
  readonly stream?: boolean | null | undefined;
  readonly stream_options?:
    | {
        readonly include_usage?: boolean | null | undefined;
        readonly continuous_usage_stats?: boolean | null | undefined;
      }
    | null
    | undefined;
}

/** One kind of request: what its fields are and how its answers look. */
export interface GenerationKind<Fields extends CommonFields> {
  readonly idPrefix: string;
  readonly schema: z.ZodType<Fields>;
  readonly unservedFields: UnservedFields;
  toRequests(requestId: string, fields: Fields, defaults: RequestDefaults): readonly GenerationRequest[];
  paths(fields: Fields): RequestPaths;
  toAnswer(head: AnswerHead, generations: AsyncIterable<Generation>, fields: Fields): Promise<object>;
  toChunks(
    head: AnswerHead,
    generations: AsyncIterable<Generation>,
    usage: StreamUsageOptions,
    fields: Fields,
  ): AsyncGenerator<object>;
}

export function generationRoute<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  { service, metrics, logger, config, keepAliveMs = DEFAULT_KEEP_ALIVE_MS }: AppDependencies,
): Handler<AppEnvironment> {
  const startGenerations = async (c: Context<AppEnvironment>, admission: Admission) => {
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes);
    refuseUnservedFields(body, kind.unservedFields);
    const fields = parseFields(kind.schema, body);
    const model = resolveModel(fields.model, config.servedModelNames);
    const id = `${kind.idPrefix}-${randomUUID().replaceAll("-", "")}`;
    const paths = kind.paths(fields);
    c.set("requestPaths", paths);
    const requests = kind.toRequests(id, fields, {
      maxLogprobs: config.maxLogprobs,
      tenant: c.get("tenant"),
      samplingParams: {
        ...admission.engine.modelInfo?.defaultSamplingParams,
        extraArgs: config.defaultExtraArguments,
      },
    });
    metrics.addImages(paths.images.length);
    Object.assign(c.get("logFields"), { id, model, images: paths.images.length, stream: fields.stream === true });
    const head = { id, created: Math.floor(Date.now() / 1000), model };
    return { fields, head, generations: runGenerations(admission, requests, withLog(metrics, c.get("logFields"))) };
  };

  return async function generate(c) {
    const admission = service.admit(c.req.raw.signal);
    let isStreaming = false;
    try {
      const { fields, head, generations } = await startGenerations(c, admission);
      if (fields.stream !== true) return c.json(await kind.toAnswer(head, generations, fields));
      const usage = {
        includeUsage: fields.stream_options?.include_usage === true,
        continuousUsage: fields.stream_options?.continuous_usage_stats === true,
      };
      const complete = Promise.withResolvers<void>();
      const events = await createEventStream(kind.toChunks(head, generations, usage, fields), {
        keepAliveMs,
        toErrorEvent(error) {
          const requestId = c.get("requestId");
          const { status, body } = toErrorAnswer(error, requestId, c.get("requestPaths"));
          if (status === 500) logger.error("A stream failed.", { requestId, error });
          return body;
        },
        onCancel: () => admission.abort(clientGone()),
        onClose() {
          admission.release();
          complete.resolve();
        },
      });
      isStreaming = true;
      c.set("whenComplete", complete.promise);
      return c.body(events, 200, eventStreamHeaders);
    } finally {
      if (!isStreaming) admission.release();
    }
  };
}

/** A request that names no model gets the first. */
function resolveModel(model: string | null | undefined, served: readonly string[]): string {
  if (model === null || model === undefined) return served[0];
  if (served.includes(model)) return model;
  const shown = model.length > 100 ? `${model.slice(0, 100)}…` : model;
  throw new HttpError(404, "model_not_found", `The model \`${shown}\` does not exist.`, { parameter: "model" });
}

/** Metrics whose sequence figures also go to the request's line in the log. */
function withLog(metrics: Metrics, logFields: Record<string, unknown>): Metrics {
  let promptTokens = 0;
  let completionTokens = 0;
  return {
    ...metrics,
    observeTimeToFirstToken(seconds) {
      logFields.timeToFirstTokenMs ??= Math.round(seconds * 1000);
      metrics.observeTimeToFirstToken(seconds);
    },
    observeSequence(figures, seconds) {
      if (figures.index === 0) promptTokens += figures.numPromptTokens;
      completionTokens += figures.numOutputTokens;
      Object.assign(logFields, { promptTokens, completionTokens, finishReason: figures.finishReason });
      metrics.observeSequence(figures, seconds);
    },
  };
}
