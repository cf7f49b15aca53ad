/** Bearer keys on every route that computes. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";

import { HttpError } from "./errors.ts";

/** Refuses with 401 unless one of the keys is sent; with no keys everyone passes. */
export function requireApiKey(apiKeys: readonly string[]): MiddlewareHandler {
  const digests = apiKeys.map(digest);
  return async function checkApiKey(c, next) {
    if (digests.length > 0) {
      const sent = /^bearer +(\S+)\s*$/i.exec(c.req.header("authorization") ?? "")?.[1];
      if (sent === undefined) throw unauthorized("Send an API key: Authorization: Bearer <key>.");
      // Digests have equal lengths and all are compared, so that time tells nothing about any key.
      const sentDigest = digest(sent);
      const isKnown = digests.reduce((known, key) => timingSafeEqual(key, sentDigest) || known, false);
      if (!isKnown) throw unauthorized("The API key is not one of this service.");
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
