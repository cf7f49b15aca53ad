/** Lets web pages of other origins read answers, where the service is told to. */
import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";

/** Seconds for which a browser need not ask again; browsers cap it at hours or minutes of their own. */
const PREFLIGHT_MAX_AGE = 600;

/** Preflights are answered here, since browsers send them without a key. `*` among the origins is every one. */
export function allowOrigins(origins: readonly string[]): MiddlewareHandler {
  return cors({
    origin: origins.includes("*") ? "*" : [...origins],
    allowMethods: ["GET", "POST", "DELETE"],
    allowHeaders: ["Authorization", "Content-Type", "X-Request-Id"],
    exposeHeaders: ["X-Request-Id", "Retry-After"],
    maxAge: PREFLIGHT_MAX_AGE,
  });
}
