/** Bearer keys for every route that is not public. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { Handler } from "hono";

import { HttpError } from "./errors.ts";
import type { AppEnvironment } from "./request-trace.ts";

/**
 * Wraps handlers, to reject requests with 401 unless one of the keys is sent; without keys, everyone passes. Sets
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
      // Digests have equal lengths and all are compared, so that timing reveals nothing about a key.
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
