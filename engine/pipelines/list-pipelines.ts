/** Lists pipelines without a model. Imports its dependencies on demand, so that servers do not load them. */
import type { PipelineList } from "../contract/engine.ts";

/** All pipelines that settings can name: those of `pipelinePath`, of installed packages, and those that ship with Fovea. */
export async function listPipelines(pipelinePath: readonly string[]): Promise<PipelineList> {
  const { findPipelineModules } = await import("./find-pipelines.ts");
  const { modules, problems } = await findPipelineModules(pipelinePath);
  const pipelines = modules.flatMap(({ location, availablePipelines }) =>
    availablePipelines.map((name) => ({ name, module: location })),
  );
  return { pipelines, problems };
}
