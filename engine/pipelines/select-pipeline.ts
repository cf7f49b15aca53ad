/** Chooses the pipeline of a text model: the one that the settings name, or the one that the model's name implies. */
import { basename, resolve } from "node:path";
import process from "node:process";

import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
import { loadedWithin } from "../loaded-within.ts";
import { requirePipeline } from "../models/pipelines/check-pipeline.ts";
import type { Pipeline, PipelineParams } from "../models/pipelines/pipeline.ts";
import { findPipelineModules } from "./find-pipelines.ts";
import type { LoadedPipelineModule, PipelineModules } from "./find-pipelines.ts";

export type PipelineConfig = Pick<EngineConfig, "model" | "multimodalPipeline" | "pipelinePath" | "pipelineParams">;

/**
 * Null if the settings name none and no module knows the model's name. Emits a warning for each module and folder that
 * was left out.
 *
 * @throws EngineError `invalid_configuration` for a name that no module has, with a list of those that there are, for a
 *   name that several modules of users have, and for a pipeline that cannot be created or is not valid.
 */
export async function selectPipeline(config: PipelineConfig): Promise<Pipeline | null> {
  const { multimodalPipeline: name = null, pipelinePath = [], pipelineParams = {} } = config;
  const found = await findPipelineModules(pipelinePath);
  requireDistinctNames(found.modules);
  const pipeline =
    name === null
      ? await selectByModelName(found.modules, basename(resolve(config.model)), pipelineParams)
      : await selectByName(found, name, pipelineParams);
  for (const problem of found.problems) process.emitWarning(problem);
  return pipeline;
}

/**
 * Otherwise the order of modules, which depends on names of folders, would decide which of two pipelines runs. Only
 * built-in ones may be replaced.
 */
function requireDistinctNames(modules: readonly LoadedPipelineModule[]): void {
  const owners = new Map<string, LoadedPipelineModule>();
  for (const module of modules) {
    if (module.file === null) continue;
    for (const name of new Set(module.availablePipelines)) {
      const owner = owners.get(name);
      owners.set(name, module);
      // One module may be found twice: in two folders of the path, or by a link.
      if (owner === undefined || owner.getPipeline === module.getPipeline) continue;
      const message = `Two modules have a pipeline ${JSON.stringify(name)}: ${owner.file} and ${module.file}. Rename one of the pipelines, or remove one of the modules.`;
      throw new EngineError("invalid_configuration", message);
    }
  }
}

async function selectByName({ modules, problems }: PipelineModules, name: string, params: PipelineParams) {
  for (const module of modules) {
    const subject = `The pipeline ${name} of ${module.location}`;
    const pipeline = await ask(subject, name, () => module.getPipeline(name, params));
    if (pipeline !== null) return pipeline;
  }
  const listing = modules.find(({ availablePipelines }) => availablePipelines.includes(name));
  const available = modules.flatMap(({ availablePipelines }) => availablePipelines).join(", ");
  const reason =
    listing === undefined
      ? `There is no pipeline ${JSON.stringify(name)}; available are ${available}.`
      : `The module ${listing.location} lists the pipeline ${name}, but its getPipeline() returns none for that name.`;
  throw new EngineError("invalid_configuration", [reason, ...problems].join(" "), { setting: "multimodalPipeline" });
}

async function selectByModelName(modules: readonly LoadedPipelineModule[], modelName: string, params: PipelineParams) {
  for (const module of modules) {
    const subject = `The pipeline for the model ${modelName} of ${module.location}`;
    const pipeline = await ask(subject, null, () => module.getPipelineFromModelName(modelName, params));
    if (pipeline !== null) return pipeline;
  }
  return null;
}

async function ask(
  subject: string,
  name: string | null,
  run: () => Pipeline | null | Promise<Pipeline | null>,
): Promise<Pipeline | null> {
  let returned: unknown;
  try {
    returned = (await loadedWithin(Promise.resolve(run()))) ?? null;
  } catch (error) {
    if (error instanceof EngineError) throw error;
    throw new EngineError("invalid_configuration", `${subject} cannot be created: ${describeError(error)}.`, {
      cause: error,
    });
  }
  return returned === null ? null : requirePipeline(subject, returned, name);
}
