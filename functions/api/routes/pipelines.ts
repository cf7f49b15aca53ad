/** GET /v1/pipelines: the names that MULTIMODAL_PIPELINE takes. */
import type { Handler } from "hono";

import { listPipelines } from "../../../engine/index.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { Service } from "../../service.ts";

export function pipelinesRoute(service: Service, pipelinePath: readonly string[]): Handler<AppEnvironment> {
  return async function showPipelines(c) {
    const { pipelines, problems } = await listPipelines(pipelinePath);
    const active = service.engine?.modelInfo?.pipeline ?? null;
    return c.json({
      object: "list",
      data: pipelines.map(({ name, module }) => ({ id: name, object: "pipeline", module, active: name === active })),
      problems,
    });
  };
}
