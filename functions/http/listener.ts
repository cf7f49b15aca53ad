/** The application as a listener of Node's HTTP server. */
import type { RequestListener } from "node:http";
import { RequestError, getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";

import { errorBody } from "./error-body.ts";
import type { AppEnvironment } from "./request-trace.ts";

/**
 * Also answers requests whose target and Host form no valid URL, which never reach the application, in the same format.
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
