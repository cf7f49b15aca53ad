/** All routes of the service, with their access rules. */
import type { Handler } from "hono";

import { chatCompletionsRoute } from "./api/routes/chat-completions.ts";
import { completionsRoute } from "./api/routes/completions.ts";
import { discoveryRoute } from "./api/routes/discovery.ts";
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
import type { AppDependencies } from "./app-dependencies.ts";
import { cancelBatchRoute, createBatchRoute, getBatchRoute, listBatchesRoute } from "./batch/routes/batches.ts";
import { deleteFileRoute, fileContentRoute, fileRoute, listFilesRoute, uploadFileRoute } from "./batch/routes/files.ts";
import type { AppEnvironment } from "./http/request-trace.ts";
import { eventsRoute } from "./jobs/routes/events.ts";
import {
  cancelRoute,
  runpodHealthRoute,
  runRoute,
  runSyncRoute,
  statusRoute,
  streamRoute,
} from "./jobs/routes/runpod.ts";
import type { RunpodJobs } from "./jobs/runpod-local/runpod-jobs.ts";

/**
 * `key`: only with one of the keys of API_KEY, if there are any; for routes that compute, or that show what a tenant
 * owns. `public`: everyone; for routes that show no more than the state of the service. `sender`: the route checks the
 * sender itself, because platforms push events with tokens of their own.
 */
export type Access = "key" | "public" | "sender";

export interface Route {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly access: Access;
  readonly handler: Handler<AppEnvironment>;
}

export function createRoutes(dependencies: AppDependencies): readonly Route[] {
  const { service, metrics, config, events, runpodJobs } = dependencies;
  const { servedModelNames } = config;
  return [
    route("POST", "/v1/chat/completions", "key", chatCompletionsRoute(dependencies)),
    route("POST", "/v1/completions", "key", completionsRoute(dependencies)),
    route("GET", "/v1/models", "key", modelsRoute(service, servedModelNames)),
    route("GET", "/v1/models/:model{.+}", "key", modelRoute(service, servedModelNames)),
    route("POST", "/v1/files", "key", uploadFileRoute(dependencies)),
    route("GET", "/v1/files", "key", listFilesRoute(dependencies)),
    route("GET", "/v1/files/:file", "key", fileRoute(dependencies)),
    route("GET", "/v1/files/:file/content", "key", fileContentRoute(dependencies)),
    route("DELETE", "/v1/files/:file", "key", deleteFileRoute(dependencies)),
    route("POST", "/v1/batches", "key", createBatchRoute(dependencies)),
    route("GET", "/v1/batches", "key", listBatchesRoute(dependencies)),
    route("GET", "/v1/batches/:batch", "key", getBatchRoute(dependencies)),
    route("POST", "/v1/batches/:batch/cancel", "key", cancelBatchRoute(dependencies)),
    ...(events ? [route("POST", "/events", "sender", eventsRoute(dependencies, events))] : []),
    ...(runpodJobs ? runpodRoutes(dependencies, runpodJobs) : []),
    route("GET", "/v1/logits-processors", "key", logitsProcessorsRoute(service)),
    route("GET", "/health", "public", readinessRoute(service)),
    route("GET", "/readyz", "public", readinessRoute(service)),
    route("GET", "/livez", "public", livenessRoute(service)),
    route("GET", "/ping", "public", pingRoute(service, config.pingStatusWhileStarting)),
    route("POST", "/ping", "public", pingRoute(service, config.pingStatusWhileStarting)),
    route("GET", "/metrics", "public", metricsRoute(metrics)),
    ...(config.hasPlayground
      ? [
          route("GET", "/playground", "public", playgroundPageRoute()),
          route("GET", "/playground/service.json", "public", playgroundServiceRoute(service, config)),
          route("GET", "/playground/examples/:file", "public", examplePictureRoute()),
          route("GET", "/playground/:file", "public", playgroundFileRoute()),
        ]
      : []),
    route("GET", "/", "public", discoveryRoute(service, config)),
  ];
}

/** Below both paths: RunPod's API has one path for each endpoint, its Python SDK serves the same without it. */
function runpodRoutes(dependencies: AppDependencies, jobs: RunpodJobs): readonly Route[] {
  const routesBelow = (prefix: string): readonly Route[] => [
    route("POST", `${prefix}/run`, "key", runRoute(dependencies, jobs)),
    route("POST", `${prefix}/runsync`, "key", runSyncRoute(dependencies, jobs)),
    route("GET", `${prefix}/status/:job`, "key", statusRoute(jobs)),
    route("GET", `${prefix}/stream/:job`, "key", streamRoute(jobs)),
    // The SDK answers POST.
    route("POST", `${prefix}/status/:job`, "key", statusRoute(jobs)),
    route("POST", `${prefix}/stream/:job`, "key", streamRoute(jobs)),
    route("POST", `${prefix}/cancel/:job`, "key", cancelRoute(jobs)),
  ];
  return [
    ...routesBelow(""),
    ...routesBelow("/v2/:endpoint"),
    // /health itself is the readiness of the service.
    route("GET", "/v2/:endpoint/health", "key", runpodHealthRoute(jobs)),
  ];
}

function route(method: Route["method"], path: string, access: Access, handler: Handler<AppEnvironment>): Route {
  return { method, path, access, handler };
}
