/** GET /: what this service is and where its routes are. */
import type { Handler } from "hono";

import type { Service } from "../../service.ts";

export function discoveryRoute(service: Service, servedModelNames: readonly string[]): Handler {
  return (c) =>
    c.json({
      name: "fovea",
      status: service.state,
      models: servedModelNames,
      architecture: service.engine?.modelInfo?.architecture ?? null,
      max_model_len: service.engine?.modelInfo?.maxModelLen ?? null,
      routes: {
        chat_completions: "/v1/chat/completions",
        completions: "/v1/completions",
        models: "/v1/models",
        logits_processors: "/v1/logits-processors",
        health: "/health",
        liveness: "/livez",
        metrics: "/metrics",
      },
    });
}
