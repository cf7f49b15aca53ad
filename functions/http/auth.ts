/** Bearer keys of routes that are not public. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { Handler } from "hono";

import { HttpError } from "./errors.ts";
import type { AppEnvironment } from "./request-trace.ts";

/**
 * Wraps handlers: a request without one of the keys is answered with 401. Without any keys, everyone is served. Sets
 * `tenant`, which the handlers of public routes do not have.
 */
export function requireApiKey(
  apiKeys: readonly string[],
): (handler: Handler<AppEnvironment>) => Handler<AppEnvironment> {
  const digests = apiKeys.map(digest);
  return (handler) => (c, next) => {
    c.set("tenant", "");
    if (digests.length > 0) {
      const sent = /^bearer +(\S+)\s*$/i.exec(c.req.header("authorization") ?? "")?.[1];
      if (sent === undefined) throw unauthorized("Send an API key: Authorization: Bearer <key>.");
      // Digests have equal lengths and all are compared, so that the time does not depend on the keys.
      const sentDigest = digest(sent);
      const isKnown = digests.reduce((known, key) => timingSafeEqual(key, sentDigest) || known, false);
      if (!isKnown) throw unauthorized("The API key is not valid for this service.");
      c.set("tenant", sentDigest.toString("hex"));
    }
    return handler(c, next);
  };
}

function digest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

function unauthorized(message: string): HttpError {
  return new HttpError(401, "invalid_api_key", message, { headers: { "WWW-Authenticate": "Bearer" } });
}
