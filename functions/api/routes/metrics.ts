/** GET /metrics, for Prometheus. */
import type { Handler } from "hono";

import type { Metrics } from "../../metrics.ts";

export function metricsRoute(metrics: Metrics): Handler {
  return async (c) => c.text(await metrics.render(), 200, { "Content-Type": metrics.contentType });
}
