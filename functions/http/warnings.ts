/** Tells the client, and the access log, what an answer leaves out. */
import type { Context } from "hono";

import type { AppEnvironment } from "./request-trace.ts";

/** Proxies reject long headers. */
const MAX_HEADER_LENGTH = 1024;

/** One header for all warnings. */
export function addWarnings(c: Context<AppEnvironment>, warnings: readonly string[]): void {
  if (warnings.length === 0) return;
  const text = warnings.join(" ").replace(/[^\x20-\x7e]/g, "?");
  c.header("X-Fovea-Warning", text.slice(0, MAX_HEADER_LENGTH));
  Object.assign(c.get("logFields"), { warnings: text.slice(0, MAX_HEADER_LENGTH) });
}
