/** Request ids, the access log, HTTP metrics and the spans of requests. */
import type { IncomingMessage } from "node:http";
import type { Context, MiddlewareHandler } from "hono";
import { routePath } from "hono/route";

import { randomUuid } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import type { Service } from "../service.ts";
import { answerAttributes } from "../telemetry/generation-attributes.ts";
import type { RequestSpan, Telemetry } from "../telemetry/telemetry.ts";
import { readTraceContext, traceIdOf } from "../telemetry/trace-context.ts";
import type { ErrorBody } from "./error-body.ts";
import { CLIENT_CLOSED_REQUEST } from "./errors.ts";
import { isRequestId } from "./request-id.ts";
import type { RequestPaths } from "./wire-parameter.ts";

export interface AppEnvironment {
  /** Absent if no server is behind the application. */
  Bindings: { readonly incoming?: IncomingMessage };
  Variables: {
    requestId: string;
    /** Whether the answer has Anthropic's form, also an error. */
    isForAnthropic: boolean;
    /** The sender: a digest of the API key, or "" until one is checked, and if none is required. */
    tenant: string;
    /** Mutable: fields that routes add to the request's line in the access log. */
    logFields: Record<string, unknown>;
    /** Set once the request is parsed. */
    requestPaths: RequestPaths | undefined;
    /** Absent if no traces are sent, and for probes. */
    span: RequestSpan | undefined;
    /** Set by routes whose callers expect another form of errors than OpenAI's. */
    toErrorBody: ((body: ErrorBody) => object) | undefined;
    /** Set if the response continues after the handler has returned: resolves when it is complete or abandoned. */
    whenComplete: Promise<void> | undefined;
  };
}

export interface TraceDependencies {
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly service: Service;
  /** Absent if no traces are sent. */
  readonly telemetry?: Telemetry;
  /** Whether the route shows the state of the service to everyone, as those for health checks do. */
  readonly isPublic: (method: string, route: string) => boolean;
}

/**
 * Echoes X-Request-Id if it is harmless, otherwise creates an id. Writes one log line per request, when its response is
 * complete. The line has the id of the caller's trace, from the W3C header `traceparent`.
 */
export function traceRequests({
  logger,
  metrics,
  service,
  telemetry,
  isPublic,
}: TraceDependencies): MiddlewareHandler<AppEnvironment> {
  return async function traceRequest(c, next) {
    const start = performance.now();
    const requestId = sanitizeRequestId(c.req.header("x-request-id")) ?? randomUuid();
    setRequestId(c, requestId);
    c.set("logFields", {});
    c.set("tenant", "");
    const { method, path } = c.req;
    const route = routePath(c, -1);
    const isRead = method === "GET" || method === "HEAD";
    const isProbe = (isRead && !path.startsWith("/v1/")) || isPublic(isRead ? "GET" : method, route);
    const isTraced = c.req.header("traceparent") !== undefined;
    const parent = isTraced ? readTraceContext((name) => c.req.header(name)) : null;
    const span = isProbe
      ? undefined
      : telemetry?.startSpan({
          name: method,
          kind: "server",
          parent,
          attributes: { "http.request.method": method, "url.path": path.slice(0, 200), "fovea.request_id": requestId },
        });
    c.set("span", span);
    const traceId = span?.traceId ?? (parent === null ? undefined : traceIdOf(parent));

    await next();

    // Also if the drain began meanwhile: the connection's next request would be rejected here.
    if (service.state === "draining") c.header("Connection", "close");
    const handler = route === "/*" || route === "/v1/*" ? "other" : route;
    const logRequest = (): void => {
      const status = c.req.raw.signal.aborted ? CLIENT_CLOSED_REQUEST : c.res.status;
      const seconds = (performance.now() - start) / 1000;
      metrics.observeHttpRequest(handler, method, status, seconds);
      logger[isProbe ? "debug" : "info"]("request", {
        requestId: c.get("requestId"),
        method,
        path: path.slice(0, 200),
        status,
        durationMs: Math.round(seconds * 1000),
        ...(traceId !== undefined && { traceId }),
        ...c.get("logFields"),
      });
      span?.setName(`${method} ${handler}`);
      span?.setAttributes({
        "http.route": handler,
        "http.response.status_code": status,
        ...answerAttributes(c.get("logFields")),
      });
      span?.end(status >= 500 || status === CLIENT_CLOSED_REQUEST ? String(status) : null);
    };
    const whenComplete = c.get("whenComplete");
    if (whenComplete === undefined) logRequest();
    else void whenComplete.then(logRequest);
  };
}

/** Uses the id of the body, which must be valid, for logs and the answer's header, unless the request's header has one. */
export function adoptRequestId(c: Context<AppEnvironment>, id: string): void {
  if (sanitizeRequestId(c.req.header("x-request-id")) !== undefined) return;
  setRequestId(c, id);
}

/** Anthropic's clients show the id of their own header in errors. */
export function setRequestId(c: Context<AppEnvironment>, id: string): void {
  c.set("requestId", id);
  c.header("X-Request-Id", id);
  if (c.get("isForAnthropic")) c.header("Request-Id", id);
}

function sanitizeRequestId(id: string | undefined): string | undefined {
  return id !== undefined && isRequestId(id) ? id : undefined;
}

/** For the access log. Most requests have no videos and documents, and their lines no such fields. */
export function countsOf({
  images,
  videos,
  documents,
}: Pick<RequestPaths, "images" | "videos" | "documents">): Readonly<Record<string, number>> {
  return {
    images: images.length,
    ...(videos.length > 0 && { videos: videos.length }),
    ...(documents.length > 0 && { documents: documents.length }),
  };
}
