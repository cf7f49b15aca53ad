/**
 * The HTTP form of Cog's containers, which Replicate runs: predictions whose `input` is the body of a completion.
 * https://github.com/replicate/cog/blob/main/docs/http.md
 */
import type { Context, Handler } from "hono";
import { z } from "zod";

import { EngineError, epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import type { ErrorBody } from "../../http/error-body.ts";
import { HttpError, toErrorAnswer } from "../../http/errors.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { createEventStream, DEFAULT_KEEP_ALIVE_MS, eventStreamHeaders } from "../../http/sse.ts";
import type { EventFormat } from "../../http/sse.ts";
import { readVersion } from "../../package-version.ts";
import { clientGone } from "../../service.ts";
import type { Service } from "../../service.ts";
import { streamErrorsOf } from "../generation-route.ts";
import { cancel, CogPredictions } from "./cog-predictions.ts";
import type { CogEnd, CogPrediction } from "./cog-predictions.ts";
import { openEnvelope } from "./enveloped-body.ts";

const MAX_ID_LENGTH = 128;

export const predictionRequest = z.looseObject({
  id: z.string("must be a string").min(1, "must not be empty").max(MAX_ID_LENGTH, "is too long").nullish(),
  input: z.looseObject({}, "must be an object: the body of a completion"),
  webhook: z.null("is not supported: jobs of a queue deliver their results to webhooks").optional(),
});

export interface CogRoutes {
  readonly health: Handler<AppEnvironment>;
  readonly create: Handler<AppEnvironment>;
  /** Idempotent: joins the prediction that runs under the id of the path, and its client may leave. */
  readonly put: Handler<AppEnvironment>;
  readonly cancel: Handler<AppEnvironment>;
}

export function createCogRoutes(dependencies: AppDependencies): CogRoutes {
  const { service, bodies, config, logger, keepAliveMs = DEFAULT_KEEP_ALIVE_MS } = dependencies;
  const predictions = new CogPredictions();

  async function readPrediction(c: Context<AppEnvironment>) {
    const startMs = epochMs();
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies);
    return { ...parseFields(predictionRequest, body), startMs };
  }

  function start(
    c: Context<AppEnvironment>,
    id: string | null,
    { input, startMs }: { readonly input: object; readonly startMs: number },
  ): CogPrediction {
    const isStreamed = wantsStream(c);
    const controller = new AbortController();
    // Throws for an input that is wrong, before the prediction exists.
    const opened = openEnvelope(c, { body: input, path: "input", signal: controller.signal }, dependencies);
    c.get("span")?.addStage({ name: "parse", startMs, endMs: epochMs() });
    return predictions.start(c.get("tenant"), id, controller, async (addChunk) => {
      if (!isStreamed) return opened.answer();
      const chunks: object[] = [];
      for await (const chunk of opened.chunks()) {
        chunks.push(chunk);
        addChunk(chunk);
      }
      return chunks;
    });
  }

  async function answer(c: Context<AppEnvironment>, prediction: CogPrediction): Promise<Response> {
    if (wantsStream(c)) return answerStream(c, prediction);
    while (prediction.end === null) await prediction.changed.promise;
    const { end } = prediction;
    if (end.status === "failed") throw end.error;
    return c.json(toPrediction(prediction, end, streamErrorsOf(c, logger)));
  }

  async function answerStream(c: Context<AppEnvironment>, prediction: CogPrediction): Promise<Response> {
    const complete = Promise.withResolvers<void>();
    const describeError = streamErrorsOf(c, logger);
    const stream = await createEventStream(eventsOf(prediction, describeError), {
      format: eventFormat,
      keepAliveMs,
      describeError,
      onCancel: () => {},
      onClose: complete.resolve,
    });
    c.set("whenComplete", complete.promise);
    return c.body(stream, 200, eventStreamHeaders);
  }

  return {
    health: (c) => c.json(describeHealth(service)),
    create: withCogErrors(async (c) => {
      service.checkRoom();
      const { id, ...body } = await readPrediction(c);
      if (typeof id === "string" && predictions.find(c.get("tenant"), id) !== null) throw isRunning(id);
      const prediction = start(c, id ?? null, body);
      const { signal } = c.req.raw;
      const leave = (): void => prediction.controller.abort(clientGone());
      signal.addEventListener("abort", leave, { once: true });
      if (signal.aborted) leave();
      return answer(c, prediction);
    }),
    put: withCogErrors(async (c) => {
      const id = idOf(c);
      const running = predictions.find(c.get("tenant"), id);
      if (running !== null) return answer(c, running);
      service.checkRoom();
      const { id: ownId, ...body } = await readPrediction(c);
      if (typeof ownId === "string" && ownId !== id) {
        throw new HttpError(400, "invalid_value", `id is ${ownId}, but the path says ${id}.`, { parameter: "id" });
      }
      // A retry may have started it while the body arrived.
      return answer(c, predictions.find(c.get("tenant"), id) ?? start(c, id, body));
    }),
    cancel: withCogErrors((c) => {
      const prediction = predictions.find(c.get("tenant"), idOf(c));
      if (prediction === null) {
        throw new HttpError(404, "prediction_not_found", "No prediction with this id is running.");
      }
      cancel(prediction);
      return c.json({});
    }),
  };
}

function idOf(c: Context<AppEnvironment>): string {
  const id = c.req.param("prediction") ?? "";
  if (id.length <= MAX_ID_LENGTH) return id;
  throw new HttpError(
    400,
    "invalid_value",
    `The id of the path has ${id.length} characters; the limit is ${MAX_ID_LENGTH}.`,
  );
}

function wantsStream(c: Context<AppEnvironment>): boolean {
  return c.req.header("accept")?.includes("text/event-stream") === true;
}

function isRunning(id: string): HttpError {
  return new HttpError(409, "prediction_running", `The prediction ${id} is running; join it by PUT.`);
}

type DescribeError = (error: unknown) => ErrorBody;

function toPrediction({ id }: CogPrediction, end: CogEnd, describeError: DescribeError): object {
  return {
    ...(id !== null && { id }),
    status: end.status,
    ...(end.status === "succeeded" ? { output: end.output } : { error: describeError(end.error).error.message }),
    metrics: { predict_time: end.seconds },
  };
}

/** From the first chunk on, also for a client that joins later. */
async function* eventsOf(prediction: CogPrediction, describeError: DescribeError): AsyncGenerator<object> {
  const { id, chunks } = prediction;
  yield { type: "start", ...(id !== null && { id }), status: "processing" };
  let index = 0;
  for (;;) {
    const { changed } = prediction;
    while (index < chunks.length) {
      yield { type: "output", chunk: chunks[index], index };
      index += 1;
    }
    if (prediction.end !== null) {
      yield { type: "completed", ...toPrediction(prediction, prediction.end, describeError) };
      return;
    }
    await changed.promise;
  }
}

/** Each event has a name, and its data repeats it as `type`. */
const eventFormat: EventFormat = {
  isNamed: true,
  toErrorEvent: ({ error }) => ({ type: "completed", status: "failed", error: error.message }),
  keepAlive: null,
  end: null,
};

/** Always 200: the state is in the body. */
function describeHealth(service: Service): object {
  return { status: healthOf(service), setup: { status: setupOf(service) }, version: { fovea: readVersion() } };
}

function healthOf(service: Service): string {
  switch (service.state) {
    case "starting":
      return "STARTING";
    case "ready":
      return hasRoom(service) ? "READY" : "BUSY";
    case "stalled":
    case "draining":
      return "UNHEALTHY";
    case "failed":
      return hasLoaded(service) ? "DEFUNCT" : "SETUP_FAILED";
  }
}

function setupOf(service: Service): "starting" | "succeeded" | "failed" {
  if (hasLoaded(service)) return "succeeded";
  return service.state === "failed" ? "failed" : "starting";
}

function hasLoaded({ engine }: Service): boolean {
  return engine !== null && engine.modelInfo !== null && engine.state !== "loading";
}

function hasRoom(service: Service): boolean {
  try {
    service.checkRoom();
    return true;
  } catch (error) {
    if (error instanceof EngineError) return false;
    throw error;
  }
}

/** Cog's statuses: 422 for an input that is wrong, 409 while all places are taken. Its errors have a `detail`. */
function withCogErrors(handler: (c: Context<AppEnvironment>) => Response | Promise<Response>): Handler<AppEnvironment> {
  return async (c) => {
    c.set("toErrorBody", ({ error }: ErrorBody) => ({ detail: error.message }));
    try {
      return await handler(c);
    } catch (error) {
      const { status, headers, body } = toErrorAnswer(error, c.get("requestId"));
      const cogStatus = { 400: 422, 429: 409 }[status];
      if (cogStatus === undefined) throw error;
      throw new HttpError(cogStatus, body.error.code, body.error.message, { headers, cause: error });
    }
  };
}
