/** Lets web pages of other origins read answers, if the settings allow it. */
import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";

/** Seconds for which a browser may cache a preflight; browsers cap it at minutes or hours. */
const PREFLIGHT_MAX_AGE = 600;

/**
 * Preflights are answered here, because browsers send them without a key. `*` among the origins allows every origin.
 * Pages may send any header: the clients of OpenAI and Anthropic add `X-Stainless-OS` and others to every request.
 */
export function allowOrigins(origins: readonly string[]): MiddlewareHandler {
  return cors({
    origin: origins.includes("*") ? "*" : [...origins],
    allowMethods: ["GET", "POST", "PUT", "DELETE"],
    exposeHeaders: ["X-Request-Id", "Request-Id", "Retry-After", "X-Fovea-Warning", "X-Omitted-Images"],
    maxAge: PREFLIGHT_MAX_AGE,
  });
}
