/** The HTTP application: its routes, and the middleware of every request. */
import type { IncomingMessage, RequestListener } from "node:http";
import { getRequestListener, RequestError } from "@hono/node-server";
import { Hono } from "hono";
import type { Context } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";

import type { AppDependencies } from "./app-dependencies.ts";
import { isFromAnthropicClient, toAnthropicError } from "./http/anthropic-error.ts";
import { requireApiKey } from "./http/auth.ts";
import { discardBody } from "./http/discard-body.ts";
import { errorBody } from "./http/error-body.ts";
import { CLIENT_CLOSED_REQUEST, HttpError, toErrorAnswer } from "./http/errors.ts";
import { allowOrigins } from "./http/origins.ts";
import { setRequestId, traceRequests } from "./http/request-trace.ts";
import type { AppEnvironment } from "./http/request-trace.ts";
import { createRoutes } from "./routes.ts";

export function createApp(dependencies: AppDependencies): Hono<AppEnvironment> {
  const { service, bodies, metrics, logger, config, telemetry, admin } = dependencies;
  const app = new Hono<AppEnvironment>();

  const publicRoutes = new Set<string>();
  const isPublic = (method: string, path: string): boolean => publicRoutes.has(`${method} ${path}`);
  app.use(traceRequests({ logger, metrics, service, isPublic, ...(telemetry && { telemetry }) }));
  app.use(async (c, next) => {
    const { raw } = c.req;
    try {
      await next();
    } finally {
      void (c.get("whenComplete") ?? Promise.resolve()).then(() => bodies.forget(raw));
    }
  });
  if (config.allowedOrigins.length > 0) app.use(allowOrigins(config.allowedOrigins));
  const anthropicPaths = new Set<string>();
  const sharedPaths = new Set<string>();
  app.use(async (c, next) => {
    const { path } = c.req;
    const isForAnthropic =
      isAtOrBelow(anthropicPaths, path) || (isAtOrBelow(sharedPaths, path) && isFromAnthropicClient(c));
    c.set("isForAnthropic", isForAnthropic);
    if (isForAnthropic) setRequestId(c, c.get("requestId"));
    await next();
  });
  const requireKey = requireApiKey(config.apiKeys);
  const requireAdminKey = requireApiKey(admin?.keys ?? []);
  for (const { method, path, access, dialect, handler } of createRoutes(dependencies)) {
    const acceptsXApiKey = dialect !== "openai";
    if (dialect === "anthropic") anthropicPaths.add(path);
    if (dialect === "both") sharedPaths.add(path);
    if (access === "public") publicRoutes.add(`${method} ${path}`);
    const protect = { key: requireKey, admin: requireAdminKey, public: null, sender: null }[access];
    app.on(method, path, protect?.(handler, { acceptsXApiKey }) ?? handler);
  }

  const answerError = async (error: unknown, c: Context<AppEnvironment>): Promise<Response> => {
    const requestId = c.get("requestId");
    const { status, headers, body } = toErrorAnswer(error, requestId, c.get("requestPaths"));
    if (c.req.raw.signal.aborted) return c.body(null, CLIENT_CLOSED_REQUEST as ContentfulStatusCode);
    const incoming = incomingOf(c);
    if (incoming !== null && isWorthDiscarding(status)) await discardBody(incoming);
    // The rest of this body precedes the connection's next request.
    const isCut = incoming !== null && !incoming.complete;
    // The caller can empty a full store, and the answer says so.
    if (status >= 500 && status !== 503 && status !== 507) logger.error("A request failed.", { requestId, error });
    const shown = c.get("isForAnthropic")
      ? { ...toAnthropicError(body), request_id: requestId }
      : (c.get("toErrorBody")?.(body) ?? body);
    return c.json(shown, status as ContentfulStatusCode, { ...headers, ...(isCut && { Connection: "close" }) });
  };
  app.onError(answerError);
  app.notFound((c) => answerError(notFound(app, c), c));
  return app;
}

/** Paths below that have no route of their own belong to the same API, such as batches of messages. */
function isAtOrBelow(paths: ReadonlySet<string>, path: string): boolean {
  for (const known of paths) if (path === known || path.startsWith(`${known}/`)) return true;
  return false;
}

/** False if the body arrives too slowly, or if the server has no room or time for it. */
function isWorthDiscarding(status: number): boolean {
  return status !== 408 && status !== 503;
}

/** Null if no server is behind the application; Hono then leaves out `env`. */
function incomingOf({ env }: { readonly env: AppEnvironment["Bindings"] | undefined }): IncomingMessage | null {
  return env?.incoming ?? null;
}

function notFound(app: Hono<AppEnvironment>, c: Context<AppEnvironment>): HttpError {
  const { method, path } = c.req;
  const isRoute = (other: string, at: string): boolean =>
    app.router.match(other, at)[0].some(([[, route]]) => route.method === other);
  const allowed = ["GET", "POST", "PUT", "DELETE"].filter((other) => isRoute(other, path));
  if (allowed.length === 0) {
    // A worker, and the port of health checks, have no list.
    const advice = isRoute("GET", "/") ? " GET / lists the routes." : "";
    return new HttpError(404, "not_found", `There is no ${path.slice(0, 200)}.${advice}`);
  }
  return new HttpError(
    405,
    "method_not_allowed",
    `${path.slice(0, 200)} answers ${allowed.join(" and ")}, not ${method}.`,
    {
      headers: { Allow: allowed.join(", ") },
    },
  );
}

/**
 * The application as a listener of Node's HTTP server. Also answers requests whose target and Host form no valid URL, which never reach the application, in the same format.
 */
export function createListener(app: Hono<AppEnvironment>): RequestListener {
  const listen = getRequestListener(app.fetch, {
    overrideGlobalObjects: false,
    // For requests of HTTP/1.0 without a Host.
    hostname: "localhost",
    errorHandler: (error) =>
      error instanceof RequestError
        ? Response.json(errorBody(400, "invalid_request", `The request cannot be read: ${reasonOf(error)}.`), {
            status: 400,
          })
        : Response.json(errorBody(500, "internal_error", "Internal error."), { status: 500 }),
  });
  return (request, response) => void listen(request, response);
}

/** The adapter's own message: "Invalid host header", "Backslash in request path". */
function reasonOf({ message }: RequestError): string {
  return message.charAt(0).toLowerCase() + message.slice(1);
}
