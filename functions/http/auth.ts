/** Keys for every route that is not public: bearer keys, and `x-api-key` where Anthropic's clients send it. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { Handler } from "hono";

import { HttpError } from "./errors.ts";
import type { AppEnvironment } from "./request-trace.ts";

export interface KeyOptions {
  /** Default false. A bearer key has precedence. */
  readonly acceptsXApiKey?: boolean;
}

/**
 * Wraps handlers, to reject requests with 401 unless one of the keys is sent, and sets `tenant`. Without keys, everyone
 * passes.
 */
export function requireApiKey(
  apiKeys: readonly string[],
): (handler: Handler<AppEnvironment>, options?: KeyOptions) => Handler<AppEnvironment> {
  if (apiKeys.length === 0) return (handler) => handler;
  const digests = apiKeys.map(digest);
  return (handler, { acceptsXApiKey = false } = {}) =>
    (c, next) => {
      const bearer = /^bearer +(\S+)\s*$/i.exec(c.req.header("authorization") ?? "")?.[1];
      const sent = bearer ?? (acceptsXApiKey ? c.req.header("x-api-key")?.trim() : undefined);
      if (sent === undefined || sent === "") {
        throw unauthorized(
          `Send an API key: ${acceptsXApiKey ? "x-api-key: <key>, or " : ""}Authorization: Bearer <key>.`,
        );
      }
      // Digests have equal lengths and all are compared, so that timing reveals nothing about a key.
      const sentDigest = digest(sent);
      const isKnown = digests.reduce((known, key) => timingSafeEqual(key, sentDigest) || known, false);
      if (!isKnown) throw unauthorized("The API key is not valid for this service.");
      c.set("tenant", sentDigest.toString("hex"));
      return handler(c, next);
    };
}

function digest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

function unauthorized(message: string): HttpError {
  return new HttpError(401, "invalid_api_key", message, { headers: { "WWW-Authenticate": "Bearer" } });
}
