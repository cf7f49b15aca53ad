/** The HTTP application: its routes, and the middleware of every request. */
import type { IncomingMessage } from "node:http";
import { Hono } from "hono";
import type { Context } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";

import type { AppDependencies } from "./app-dependencies.ts";
import { requireApiKey } from "./http/auth.ts";
import { allowOrigins } from "./http/origins.ts";
import { discardBody } from "./http/discard-body.ts";
import { CLIENT_CLOSED_REQUEST, HttpError, toErrorAnswer } from "./http/errors.ts";
import { traceRequests } from "./http/request-trace.ts";
import type { AppEnvironment } from "./http/request-trace.ts";
import { cancelBatchRoute, createBatchRoute, getBatchRoute, listBatchesRoute } from "./batch/routes/batches.ts";
import { chatCompletionsRoute } from "./api/routes/chat-completions.ts";
import { completionsRoute } from "./api/routes/completions.ts";
import { discoveryRoute } from "./api/routes/discovery.ts";
import { deleteFileRoute, fileContentRoute, fileRoute, listFilesRoute, uploadFileRoute } from "./batch/routes/files.ts";
import { livenessRoute, pingRoute, readinessRoute } from "./api/routes/health.ts";
import { logitsProcessorsRoute } from "./api/routes/logits-processors.ts";
import { metricsRoute } from "./api/routes/metrics.ts";
import { modelRoute, modelsRoute } from "./api/routes/models.ts";
import {
  examplePictureRoute,
  playgroundFileRoute,
  playgroundPageRoute,
  playgroundServiceRoute,
} from "./api/routes/playground.ts";

export function createApp(dependencies: AppDependencies): Hono<AppEnvironment> {
  const { service, metrics, logger, config } = dependencies;
  const app = new Hono<AppEnvironment>();

  app.use(traceRequests({ logger, metrics, service }));
  if (config.allowedOrigins.length > 0) app.use(allowOrigins(config.allowedOrigins));
  app.use("/v1/*", requireApiKey(config.apiKeys));
  app.post("/v1/chat/completions", chatCompletionsRoute(dependencies));
  app.post("/v1/completions", completionsRoute(dependencies));
  app.get("/v1/models", modelsRoute(service, config.servedModelNames));
  app.get("/v1/models/:model{.+}", modelRoute(service, config.servedModelNames));
  app.post("/v1/files", uploadFileRoute(dependencies));
  app.get("/v1/files", listFilesRoute(dependencies));
  app.get("/v1/files/:file", fileRoute(dependencies));
  app.get("/v1/files/:file/content", fileContentRoute(dependencies));
  app.delete("/v1/files/:file", deleteFileRoute(dependencies));
  app.post("/v1/batches", createBatchRoute(dependencies));
  app.get("/v1/batches", listBatchesRoute(dependencies));
  app.get("/v1/batches/:batch", getBatchRoute(dependencies));
  app.post("/v1/batches/:batch/cancel", cancelBatchRoute(dependencies));
  app.get("/v1/logits-processors", logitsProcessorsRoute(service));
  app.get("/health", readinessRoute(service));
  app.get("/readyz", readinessRoute(service));
  app.get("/livez", livenessRoute(service));
  app.on(["GET", "POST"], "/ping", pingRoute(service, config.pingStatusWhileStarting));
  app.get("/metrics", metricsRoute(metrics));
  if (config.hasPlayground) {
    app.get("/playground", playgroundPageRoute());
    app.get("/playground/service.json", playgroundServiceRoute(service, config));
    app.get("/playground/examples/:file", examplePictureRoute());
    app.get("/playground/:file", playgroundFileRoute());
  }
  app.get("/", discoveryRoute(service, config));

  const answerError = async (error: unknown, c: Context<AppEnvironment>): Promise<Response> => {
    const requestId = c.get("requestId");
    const { status, headers, body } = toErrorAnswer(error, requestId, c.get("requestPaths"));
    if (c.req.raw.signal.aborted) return c.body(null, CLIENT_CLOSED_REQUEST as ContentfulStatusCode);
    const incoming = incomingOf(c);
    if (status === 413 && incoming !== null) await discardBody(incoming);
    // The caller can empty a full store, and the answer says so.
    if (status >= 500 && status !== 503 && status !== 507) logger.error("A request failed.", { requestId, error });
    return c.json(body, status as ContentfulStatusCode, { ...headers });
  };
  app.onError(answerError);
  app.notFound((c) => answerError(notFound(app, c), c));
  return app;
}

/** Null if no server is behind the application; Hono then leaves out `env`. */
function incomingOf({ env }: { readonly env: AppEnvironment["Bindings"] | undefined }): IncomingMessage | null {
  return env?.incoming ?? null;
}

function notFound(app: Hono<AppEnvironment>, c: Context<AppEnvironment>): HttpError {
  const { method, path } = c.req;
  const allowed = ["GET", "POST", "DELETE"].filter((other) =>
    app.router.match(other, path)[0].some(([[, route]]) => route.method === other),
  );
  if (allowed.length === 0) return new HttpError(404, "not_found", `There is no ${path.slice(0, 200)}.`);
  return new HttpError(
    405,
    "method_not_allowed",
    `${path.slice(0, 200)} answers ${allowed.join(" and ")}, not ${method}.`,
    {
      headers: { Allow: allowed.join(", ") },
    },
  );
}
