/** All routes of the service, with their access rules. */
import type { Handler } from "hono";

import { createCogRoutes } from "./api/platforms/cog.ts";
import {
  inferRoute,
  modelMetadataRoute,
  modelReadinessRoute,
  protocolLivenessRoute,
  protocolReadinessRoute,
  serverMetadataRoute,
} from "./api/platforms/open-inference.ts";
import { executionParametersRoute } from "./api/platforms/sagemaker.ts";
import { vertexPredictRoute } from "./api/platforms/vertex-ai.ts";
import { quiesceRoute, resumeRoute } from "./api/routes/admin.ts";
import { chatCompletionsRoute } from "./api/routes/chat-completions.ts";
import { completionsRoute } from "./api/routes/completions.ts";
import { detokenizeRoute } from "./api/routes/detokenize.ts";
import { discoveryRoute } from "./api/routes/discovery.ts";
import { embeddingsRoute, poolingRoute } from "./api/routes/embeddings.ts";
import { livenessRoute, pingRoute, readinessRoute } from "./api/routes/health.ts";
import { invocationsRoute } from "./api/routes/invocations.ts";
import { loadRoute } from "./api/routes/load.ts";
import { logitsProcessorsRoute } from "./api/routes/logits-processors.ts";
import { countTokensRoute, messagesRoute } from "./api/routes/messages.ts";
import { metricsRoute } from "./api/routes/metrics.ts";
import { modelRoute, modelsRoute } from "./api/routes/models.ts";
import { pipelinesRoute } from "./api/routes/pipelines.ts";
import {
  examplePictureRoute,
  playgroundFileRoute,
  playgroundPageRoute,
  playgroundServiceRoute,
} from "./api/routes/playground.ts";
import { renderChatCompletionRoute, renderCompletionRoute } from "./api/routes/render.ts";
import { responseInputTokensRoute, responsesRoute } from "./api/routes/responses.ts";
import { rerankRoute, scoreRoute } from "./api/routes/scores.ts";
import { tokenizeRoute } from "./api/routes/tokenize.ts";
import { versionRoute } from "./api/routes/version.ts";
import type { AppDependencies } from "./app-dependencies.ts";
import { cancelBatchRoute, createBatchRoute, getBatchRoute, listBatchesRoute } from "./batch/routes/batches.ts";
import { deleteFileRoute, fileContentRoute, fileRoute, listFilesRoute, uploadFileRoute } from "./batch/routes/files.ts";
import { holdWhileStarting } from "./http/hold-requests.ts";
import type { AppEnvironment } from "./http/request-trace.ts";
import { eventsRoute } from "./jobs/routes/events.ts";
import {
  cancelRoute,
  purgeRoute,
  runpodHealthRoute,
  runRoute,
  runSyncRoute,
  statusRoute,
  streamRoute,
} from "./jobs/routes/runpod.ts";
import type { RunpodJobs } from "./jobs/runpod-local/runpod-jobs.ts";
import type { Service } from "./service.ts";

/**
 * `key`: only with one of the keys of API_KEY, if there are any; for routes that compute, or that show what a tenant
 * owns. `public`: everyone; for routes that show no more than the state of the service. `sender`: the route checks the
 * sender itself, because platforms push events with tokens of their own. `admin`: only with ADMIN_KEY.
 */
export type Access = "key" | "public" | "sender" | "admin";

/** Whose clients call a route: the form of its errors, and the headers for keys. `both`: a header of the request tells. */
export type Dialect = "openai" | "anthropic" | "both";

export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly access: Access;
  readonly dialect: Dialect;
  readonly handler: Handler<AppEnvironment>;
}

export function createRoutes(dependencies: AppDependencies): readonly Route[] {
  const state = stateRoutes(dependencies);
  if (dependencies.servesRequests === false) return state;
  const own = [...requestRoutes(dependencies), ...platformRoutes(dependencies), ...state];
  // The paths of Vertex AI may be those of other routes, which then answer themselves.
  const isOwn = ({ method, path }: Route): boolean =>
    own.some((other) => other.method === method && other.path === path);
  return [...own, ...vertexRoutes(dependencies).filter((other) => !isOwn(other))];
}

function requestRoutes(dependencies: AppDependencies): readonly Route[] {
  const { service, config, events, runpodJobs } = dependencies;
  const { servedModelNames } = config;
  const hold = holdFor(service);
  return [
    route("POST", "/v1/chat/completions", "key", hold(chatCompletionsRoute(dependencies))),
    route("POST", "/v1/completions", "key", hold(completionsRoute(dependencies))),
    route("POST", "/v1/responses", "key", hold(responsesRoute(dependencies))),
    route("POST", "/v1/embeddings", "key", hold(embeddingsRoute(dependencies))),
    route("POST", "/pooling", "key", hold(poolingRoute(dependencies))),
    ...["/rerank", "/v1/rerank", "/v2/rerank"].map((path) =>
      route("POST", path, "key", hold(rerankRoute(dependencies))),
    ),
    ...["/score", "/v1/score"].map((path) => route("POST", path, "key", hold(scoreRoute(dependencies)))),
    route("POST", "/v1/responses/input_tokens", "key", hold(responseInputTokensRoute(dependencies))),
    route("POST", "/v1/messages", "key", hold(messagesRoute(dependencies)), "anthropic"),
    route("POST", "/v1/messages/count_tokens", "key", hold(countTokensRoute(dependencies)), "anthropic"),
    route("POST", "/v1/chat/completions/render", "key", hold(renderChatCompletionRoute(dependencies))),
    route("POST", "/v1/completions/render", "key", hold(renderCompletionRoute(dependencies))),
    route("POST", "/tokenize", "key", hold(tokenizeRoute(dependencies))),
    route("POST", "/detokenize", "key", hold(detokenizeRoute(dependencies))),
    route("GET", "/v1/models", "key", modelsRoute(service, servedModelNames), "both"),
    route("GET", "/v1/models/:model{.+}", "key", modelRoute(service, servedModelNames), "both"),
    route("POST", "/v1/files", "key", uploadFileRoute(dependencies), "both"),
    route("GET", "/v1/files", "key", listFilesRoute(dependencies), "both"),
    route("GET", "/v1/files/:file", "key", fileRoute(dependencies), "both"),
    route("GET", "/v1/files/:file/content", "key", fileContentRoute(dependencies), "both"),
    route("DELETE", "/v1/files/:file", "key", deleteFileRoute(dependencies), "both"),
    route("POST", "/v1/batches", "key", createBatchRoute(dependencies)),
    route("GET", "/v1/batches", "key", listBatchesRoute(dependencies)),
    route("GET", "/v1/batches/:batch", "key", getBatchRoute(dependencies)),
    route("POST", "/v1/batches/:batch/cancel", "key", cancelBatchRoute(dependencies)),
    ...(events ? [route("POST", "/events", "sender", eventsRoute(dependencies, events))] : []),
    ...(runpodJobs ? runpodRoutes(dependencies, runpodJobs) : []),
    route("GET", "/v1/logits-processors", "key", logitsProcessorsRoute(service)),
    route("GET", "/v1/pipelines", "key", pipelinesRoute(service, config.engine.pipelinePath)),
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

/** The forms in which platforms call a container, beside OpenAI's. */
function platformRoutes(dependencies: AppDependencies): readonly Route[] {
  const { service } = dependencies;
  const cog = createCogRoutes(dependencies);
  const hold = holdFor(service);
  return [
    route("POST", "/invocations", "key", hold(invocationsRoute(dependencies))),
    route("GET", "/execution-parameters", "public", executionParametersRoute(dependencies)),
    route("GET", "/health-check", "public", cog.health),
    route("POST", "/predictions", "key", hold(cog.create)),
    route("PUT", "/predictions/:prediction", "key", hold(cog.put)),
    route("POST", "/predictions/:prediction/cancel", "key", cog.cancel),
    route("GET", "/v2", "public", serverMetadataRoute()),
    route("GET", "/v2/health/live", "public", protocolLivenessRoute(service)),
    route("GET", "/v2/health/ready", "public", protocolReadinessRoute(service)),
    // The longer paths first, because a name may have slashes.
    ...["/v2/models/:model{.+}/versions/:version", "/v2/models/:model{.+}"].flatMap((model) => [
      route("GET", `${model}/ready`, "public", modelReadinessRoute(dependencies)),
      route("GET", model, "key", modelMetadataRoute(dependencies)),
      route("POST", `${model}/infer`, "key", hold(inferRoute(dependencies))),
    ]),
  ];
}

function vertexRoutes(dependencies: AppDependencies): readonly Route[] {
  const { health, predict } = dependencies.config.vertexRoutes;
  const hold = holdFor(dependencies.service);
  return [
    ...(health === null ? [] : [route("GET", health, "public", readinessRoute(dependencies.service))]),
    ...(predict === null ? [] : [route("POST", predict, "key", hold(vertexPredictRoute(dependencies)))]),
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
    route("POST", `${prefix}/purge-queue`, "key", purgeRoute(jobs)),
  ];
  return [
    ...routesBelow(""),
    ...routesBelow("/v2/:endpoint"),
    // /health itself is the readiness of the service.
    route("GET", "/v2/:endpoint/health", "key", runpodHealthRoute(jobs)),
  ];
}

/** For routes that need the model. */
function holdFor(service: Service): (handler: Handler<AppEnvironment>) => Handler<AppEnvironment> {
  return (handler) => (service.holdsRequests ? holdWhileStarting(handler, service) : handler);
}

/** For probes and dashboards. */
function stateRoutes({ service, metrics, config, admin }: AppDependencies): readonly Route[] {
  const adminRoutes = admin && [
    route("POST", "/admin/quiesce", "admin", quiesceRoute(admin.snapshots)),
    route("POST", "/admin/resume", "admin", resumeRoute(admin.snapshots, service)),
  ];
  return [
    ...(adminRoutes ?? []),
    route("GET", "/health", "public", readinessRoute(service)),
    route("GET", "/readyz", "public", readinessRoute(service)),
    route("GET", "/livez", "public", livenessRoute(service)),
    route("GET", "/ping", "public", pingRoute(service, config.pingStatusWhileStarting)),
    route("POST", "/ping", "public", pingRoute(service, config.pingStatusWhileStarting)),
    route("GET", "/load", "public", loadRoute(service)),
    route("GET", "/version", "public", versionRoute()),
    route("GET", "/metrics", "public", metricsRoute(metrics)),
  ];
}

function route(
  method: Route["method"],
  path: string,
  access: Access,
  handler: Handler<AppEnvironment>,
  dialect: Dialect = "openai",
): Route {
  return { method, path, access, dialect, handler };
}
