/** GET /v1/pipelines: the names that MULTIMODAL_PIPELINE takes. */
import type { Handler } from "hono";

import { listPipelines } from "../../../engine/index.ts";
import type { PipelineList } from "../../../engine/index.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { Service } from "../../service.ts";

export function pipelinesRoute(service: Service, pipelinePath: readonly string[]): Handler<AppEnvironment> {
  /** Packages are read once: modules that were imported stay the same anyway. */
  let listed: Promise<PipelineList> | null = null;
  return async function showPipelines(c) {
    listed ??= listPipelines(pipelinePath).catch((error: unknown) => {
      listed = null;
      throw error;
    });
    const { pipelines, problems } = await listed;
    const active = service.engine?.modelInfo?.pipeline ?? null;
    return c.json({
      object: "list",
      data: pipelines.map(({ name, module }) => ({ id: name, object: "pipeline", module, active: name === active })),
      problems,
    });
  };
}
