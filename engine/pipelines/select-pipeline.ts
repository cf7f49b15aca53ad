/** Chooses the pipeline of a text model: the one that the settings name, or the one that the model's name implies. */
import { basename, resolve } from "node:path";
import process from "node:process";

import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { describeError, shown } from "../excerpt.ts";
import type { Pipeline, PipelineParams } from "../models/pipelines/pipeline.ts";
import { findPipelineModules } from "./find-pipelines.ts";
import type { LoadedPipelineModule, PipelineModules } from "./find-pipelines.ts";

export type PipelineConfig = Pick<EngineConfig, "model" | "multimodalPipeline" | "pipelinePath" | "pipelineParams">;

/**
 * Null if the settings name none and no module knows the model's name. Emits a warning for each module and folder that
 * was left out.
 *
 * @throws EngineError `invalid_configuration` for a name that no module has, with a list of those that there are, and
 *   for a pipeline that cannot be created.
 */
export async function selectPipeline(config: PipelineConfig): Promise<Pipeline | null> {
  const { multimodalPipeline: name = null, pipelinePath = [], pipelineParams = {} } = config;
  const found = await findPipelineModules(pipelinePath);
  const pipeline =
    name === null
      ? await selectByModelName(found.modules, basename(resolve(config.model)), pipelineParams)
      : await selectByName(found, name, pipelineParams);
  for (const problem of found.problems) process.emitWarning(problem);
  return pipeline;
}

async function selectByName({ modules, problems }: PipelineModules, name: string, params: PipelineParams) {
  for (const module of modules) {
    const pipeline = await ask(module, name, () => module.getPipeline(name, params));
    if (pipeline !== null) return pipeline;
  }
  const available = modules.flatMap(({ availablePipelines }) => availablePipelines).join(", ");
  throw new EngineError(
    "invalid_configuration",
    [`There is no pipeline ${JSON.stringify(name)}; available are ${available}.`, ...problems].join(" "),
    { setting: "multimodalPipeline" },
  );
}

async function selectByModelName(modules: readonly LoadedPipelineModule[], modelName: string, params: PipelineParams) {
  for (const module of modules) {
    const pipeline = await ask(module, `for the model ${modelName}`, () =>
      module.getPipelineFromModelName(modelName, params),
    );
    if (pipeline !== null) return pipeline;
  }
  return null;
}

async function ask(
  { location }: LoadedPipelineModule,
  wanted: string,
  run: () => Pipeline | null | Promise<Pipeline | null>,
): Promise<Pipeline | null> {
  let pipeline: Pipeline | null;
  try {
    pipeline = (await run()) ?? null;
  } catch (error) {
    if (error instanceof EngineError) throw error;
    throw new EngineError(
      "invalid_configuration",
      `The pipeline ${wanted} of ${location} cannot be created: ${describeError(error)}.`,
      { cause: error },
    );
  }
  if (pipeline !== null) checkFields(pipeline, location);
  return pipeline;
}

const textFields = ["name", "imageStart", "imageEnd", "imagePlaceholder"] as const;

/** Modules in JavaScript are not checked by a compiler. */
function checkFields(pipeline: Pipeline, location: string): void {
  const refuse = (field: keyof Pipeline, expected: string): never => {
    throw new EngineError(
      "invalid_configuration",
      `A pipeline of ${location} has the ${field} ${shown(pipeline[field])}; expected ${expected}.`,
    );
  };
  for (const field of textFields) if (typeof pipeline[field] !== "string") refuse(field, "a text");
  if (pipeline.imagePlaceholder === "") refuse("imagePlaceholder", "a text that is not empty");
  if (!Number.isInteger(pipeline.placeholderTokenId)) refuse("placeholderTokenId", "the id of a token");
  if (!Array.isArray(pipeline.weights)) refuse("weights", "a list of files");
  if (typeof pipeline.visionEncoder !== "function") refuse("visionEncoder", "a function");
}
