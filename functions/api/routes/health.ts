/** What platforms ask to learn whether to send requests here, and whether to restart the process. */
import type { Handler } from "hono";

import type { Service } from "../../service.ts";

const RETRY_AFTER = { "Retry-After": "2" } as const;

/** 200 only where requests are served; a full queue counts as ready, since readiness must not flap with load. */
export function readinessRoute(service: Service): Handler {
  return (c) => {
    const { state } = service;
    return state === "ready" ? c.json({ status: state }) : c.json({ status: state }, 503, RETRY_AFTER);
  };
}

/** 200 unless only a restart helps. */
export function livenessRoute(service: Service): Handler {
  return (c) => {
    const { state } = service;
    return c.json({ status: state }, state === "failed" ? 500 : 200);
  };
}

/** SageMaker's and RunPod's health check; RunPod reads 204 as "still starting", others as ready. */
export function pingRoute(service: Service, statusWhileStarting: 204 | 503): Handler {
  return (c) => {
    const { state } = service;
    switch (state) {
      case "ready":
        return c.json({ status: state });
      case "starting":
        return statusWhileStarting === 204 ? c.body(null, 204) : c.json({ status: state }, 503, RETRY_AFTER);
      case "draining":
        return c.json({ status: state }, 503);
      case "failed":
        return c.json({ status: state }, 500);
    }
  };
}
