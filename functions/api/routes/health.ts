/** Routes by which platforms learn whether to send requests here, and whether to restart the process. */
import type { Handler } from "hono";

import type { Service, ServiceState } from "../../service.ts";

const retryAfterHeader = { "Retry-After": "2" } as const;

/** 200 only if requests are served. A full queue counts as ready, because readiness must not flap with load. */
export function readinessRoute(service: Service): Handler {
  return (c) => {
    const body = describe(service);
    return body.status === "ready" ? c.json(body) : c.json(body, 503, retryAfterHeader);
  };
}

/** 200 unless only a restart helps. */
export function livenessRoute(service: Service): Handler {
  return (c) => {
    const body = describe(service);
    if (body.status === "stalled" && service.stall?.isLasting === true) return c.json(body, 503);
    return c.json(body, body.status === "failed" ? 500 : 200);
  };
}

/**
 * The health check of SageMaker and RunPod, which both restart a container on failure: a stall that may end by itself
 * is still 200. RunPod reads 204 as "still starting", others as ready.
 */
export function pingRoute(service: Service, statusWhileStarting: 204 | 503): Handler {
  return (c) => {
    const body = describe(service);
    switch (body.status) {
      case "ready":
        return c.json(body);
      case "stalled":
        return c.json(body, service.stall?.isLasting === true ? 503 : 200);
      case "starting":
        return statusWhileStarting === 204 ? c.body(null, 204) : c.json(body, 503, retryAfterHeader);
      case "draining":
        return c.json(body, 503);
      case "failed":
        return c.json(body, 500);
    }
  };
}

interface HealthBody {
  readonly status: ServiceState;
  readonly message?: string;
}

/** Public, so it reveals only the duration of a stall; the log names the code. */
function describe({ state, stall, isDeviceLost }: Service): HealthBody {
  if (isDeviceLost) return { status: state, message: "The GPU is lost; only a new process can use it." };
  if (state !== "stalled" || stall === null) return { status: state };
  const message = `One step of the engine has taken more than ${stall.seconds} s and has not ended; the log names the code that it is running.`;
  return { status: state, message };
}
