/** The common part of the routes that generate text, from the body to the answer. */
import type { Context, Handler } from "hono";

import { epochMs } from "../../engine/index.ts";
import type { AppDependencies } from "../app-dependencies.ts";
import {
  answeringModelOf,
  createRequests,
  maxRunningOf,
  parseBody,
  streamUsageOf,
} from "../generation/generation-kind.ts";
import type { CommonFields, GenerationKind, ParsedBody } from "../generation/generation-kind.ts";
import { runGenerations } from "../generation/generations.ts";
import type { Generation } from "../generation/generations.ts";
import type { ErrorBody } from "../http/error-body.ts";
import { toErrorAnswer } from "../http/errors.ts";
import { readJsonObject } from "../http/json-body.ts";
import { jsonInTurns } from "../http/json-in-turns.ts";
import { adoptRequestId, countsOf } from "../http/request-trace.ts";
import type { AppEnvironment } from "../http/request-trace.ts";
import { chunkFormat, createEventStream, DEFAULT_KEEP_ALIVE_MS, eventStreamHeaders } from "../http/sse.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import { clientGone } from "../service.ts";
import type { Admission } from "../service.ts";
import { requestAttributes, traced } from "../telemetry/generation-attributes.ts";

/** The number of images that the model did not see. A stream that starts before its first text has no such header. */
const omittedImagesHeader = "X-Omitted-Images";

/** Answers a body that has been read, from `startMs` on (since the epoch). */
export type BodyAnswer = (c: Context<AppEnvironment>, body: object, startMs: number) => Promise<Response>;

export function generationRoute<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  dependencies: AppDependencies,
): Handler<AppEnvironment> {
  return bodyRoute(dependencies, generationAnswer(kind, dependencies));
}

/** Reads the body of a request while there is room for it, and answers it. */
export function bodyRoute({ service, bodies, config }: AppDependencies, answer: BodyAnswer): Handler<AppEnvironment> {
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    return answer(c, await readJsonObject(c.req.raw, config.maxBodyBytes, bodies), startMs);
  };
}

export function generationAnswer<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  { service, metrics, logger, config, keepAliveMs = DEFAULT_KEEP_ALIVE_MS }: AppDependencies,
): BodyAnswer {
  return async function generate(c, body, startMs) {
    const parsed = parseBody(kind, body, config);
    c.get("span")?.addStage({ name: "parse", startMs, endMs: epochMs() });
    const { fields, head } = parsed;
    c.set("requestPaths", parsed.paths);
    if (typeof fields.request_id === "string") adoptRequestId(c, fields.request_id);
    // Only after the body, because senders that never end theirs would otherwise hold all places.
    const admission = service.admit(c.req.raw.signal);
    let isStreaming = false;
    try {
      const model = answeringModelOf({ engine: admission.engine, config });
      addWarnings(c, kind.warnings?.(fields, model) ?? []);
      const started = startGenerations(c, kind, parsed, admission, { metrics, config });
      const { id, model: name } = head;
      const counts = countsOf(parsed.paths);
      Object.assign(c.get("logFields"), { id, model: name, ...counts, stream: fields.stream === true });
      let numOmittedImages = 0;
      const generations = countOmitted(started, (count) => (numOmittedImages += count));
      const omittedHeader = () => (numOmittedImages > 0 ? { [omittedImagesHeader]: String(numOmittedImages) } : {});
      if (fields.stream !== true) {
        const answer = await kind.toAnswer(head, generations, fields, model);
        const text = await jsonInTurns(answer);
        return c.body(text, 200, { "Content-Type": "application/json", ...omittedHeader() });
      }
      const describeError = streamErrorsOf(c, logger);
      const complete = Promise.withResolvers<void>();
      const usage = streamUsageOf(fields);
      const events = await createEventStream(kind.toChunks(head, generations, usage, fields, model, describeError), {
        format: kind.eventFormat ?? chunkFormat,
        keepAliveMs,
        describeError,
        onCancel: () => admission.abort(clientGone()),
        onClose() {
          admission.release();
          complete.resolve();
        },
      });
      isStreaming = true;
      c.set("whenComplete", complete.promise);
      return c.body(events, 200, { ...eventStreamHeaders, ...omittedHeader() });
    } finally {
      if (!isStreaming) admission.release();
    }
  };
}

/** Reports the omitted images of each prompt with its first output. */
async function* countOmitted(
  generations: AsyncGenerator<Generation>,
  onOmitted: (numImages: number) => void,
): AsyncGenerator<Generation> {
  const seen = new Set<string>();
  for await (const generation of generations) {
    const { requestId, numOmittedImages = 0 } = generation.output;
    if (!seen.has(requestId)) onOmitted(numOmittedImages);
    seen.add(requestId);
    yield generation;
  }
}

/** Proxies reject long headers. */
const MAX_HEADER_LENGTH = 1024;

/** One header for all warnings. */
function addWarnings(c: Context<AppEnvironment>, warnings: readonly string[]): void {
  if (warnings.length === 0) return;
  const text = warnings.join(" ").replace(/[^\x20-\x7e]/g, "?");
  c.header("X-Fovea-Warning", text.slice(0, MAX_HEADER_LENGTH));
  Object.assign(c.get("logFields"), { warnings: text.slice(0, MAX_HEADER_LENGTH) });
}

/**
 * Starts the generations of a body, with what the log, the metrics and the trace of its request tell about them. Adds the
 * figures of the body to those of other bodies of the same request.
 *
 * @throws HttpError 400 or EngineError `invalid_argument` for values out of range.
 */
export function startGenerations<Fields extends CommonFields>(
  c: Context<AppEnvironment>,
  kind: GenerationKind<Fields>,
  parsed: ParsedBody<Fields>,
  admission: Admission,
  { metrics, config }: Pick<AppDependencies, "metrics" | "config">,
): AsyncGenerator<Generation> {
  const requests = createRequests(kind, parsed, { engine: admission.engine, config, tenant: c.get("tenant") });
  metrics.addMedia(parsed.paths);
  const span = c.get("span");
  if (span !== undefined) span.setAttributes(requestAttributes(kind, parsed.head.model, requests));
  const observed = span === undefined ? requests : traced(requests, span);
  return runGenerations(admission, observed, withLog(metrics, c.get("logFields")), maxRunningOf(kind, admission));
}

/** Metrics that also add a sequence's figures to the request's log line. */
function withLog(metrics: Metrics, logFields: Record<string, unknown>): Metrics {
  return {
    ...metrics,
    observeTimeToFirstToken(seconds) {
      logFields.timeToFirstTokenMs ??= Math.round(seconds * 1000);
      metrics.observeTimeToFirstToken(seconds);
    },
    observeSequence(figures, seconds) {
      if (figures.index === 0) addTo(logFields, "promptTokens", figures.numPromptTokens);
      addTo(logFields, "completionTokens", figures.numOutputTokens);
      logFields.finishReason = figures.finishReason;
      metrics.observeSequence(figures, seconds);
    },
  };
}

/** Adds a count to those of earlier bodies and sequences of the request. */
export function addTo(logFields: Record<string, unknown>, name: string, count: number): void {
  logFields[name] = Number(logFields[name] ?? 0) + count;
}

/**
 * For errors of a stream, after its status has been sent: returns a function that describes an error to the client, and
 * logs it if it is the service's own.
 */
export function streamErrorsOf(c: Context<AppEnvironment>, logger: Logger): (error: unknown) => ErrorBody {
  return (error) => {
    const requestId = c.get("requestId");
    const { status, body } = toErrorAnswer(error, requestId, c.get("requestPaths"));
    if (status === 500) logger.error("A stream failed.", { requestId, error });
    return body;
  };
}
