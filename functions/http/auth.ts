/** Bearer keys for every route that computes. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";

import { HttpError } from "./errors.ts";
import type { AppEnvironment } from "./request-trace.ts";

/** Rejects with 401 unless one of the keys is sent; without keys, everyone passes. Sets the tenant. */
export function requireApiKey(apiKeys: readonly string[]): MiddlewareHandler<AppEnvironment> {
  const digests = apiKeys.map(digest);
  return async function checkApiKey(c, next) {
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
    await next();
  };
}

function digest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

function unauthorized(message: string): HttpError {
  return new HttpError(401, "invalid_api_key", message, { headers: { "WWW-Authenticate": "Bearer" } });
}
