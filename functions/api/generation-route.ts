/** The common part of the routes that generate text, from the body to the answer. */
import type { Context, Handler } from "hono";

import type { AppDependencies } from "../app-dependencies.ts";
import { createRequests, parseBody, streamUsageOf } from "../generation/generation-kind.ts";
import type { CommonFields, GenerationKind, ParsedBody } from "../generation/generation-kind.ts";
import { runGenerations } from "../generation/generations.ts";
import { toErrorAnswer } from "../http/errors.ts";
import { readJsonObject } from "../http/json-body.ts";
import type { AppEnvironment } from "../http/request-trace.ts";
import { createEventStream, eventStreamHeaders } from "../http/sse.ts";
import type { Metrics } from "../metrics.ts";
import { clientGone } from "../service.ts";
import type { Admission } from "../service.ts";

const DEFAULT_KEEP_ALIVE_MS = 10_000;

export function generationRoute<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  { service, bodies, metrics, logger, config, keepAliveMs = DEFAULT_KEEP_ALIVE_MS }: AppDependencies,
): Handler<AppEnvironment> {
  const startGenerations = (c: Context<AppEnvironment>, parsed: ParsedBody<Fields>, admission: Admission) => {
    const requests = createRequests(kind, parsed, { engine: admission.engine, config, tenant: c.get("tenant") });
    const { fields, head, paths } = parsed;
    metrics.addImages(paths.images.length);
    const { id, model } = head;
    Object.assign(c.get("logFields"), { id, model, images: paths.images.length, stream: fields.stream === true });
    return runGenerations(admission, requests, withLog(metrics, c.get("logFields")));
  };

  return async function generate(c) {
    service.checkRoom();
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies);
    const parsed = parseBody(kind, body, config.servedModelNames);
    const { fields, head } = parsed;
    c.set("requestPaths", parsed.paths);
    // Only after the body, because senders that never end theirs would otherwise hold all places.
    const admission = service.admit(c.req.raw.signal);
    let isStreaming = false;
    try {
      const generations = startGenerations(c, parsed, admission);
      if (fields.stream !== true) return c.json(await kind.toAnswer(head, generations, fields));
      const complete = Promise.withResolvers<void>();
      const events = await createEventStream(kind.toChunks(head, generations, streamUsageOf(fields), fields), {
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

/** Metrics that also add a sequence's figures to the request's log line. */
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
