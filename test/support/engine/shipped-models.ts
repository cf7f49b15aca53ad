/** Functions of the engine, with the shipped definition of the checkpoint's architecture where a test gives none. */
import { buildModel as build } from "../../../engine/models/build-model.ts";
import type { BuildModelOptions } from "../../../engine/models/build-model.ts";
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import * as layouts from "../../../engine/models/kv-layout.ts";
import type { ModelDefinition } from "../../../engine/models/model-definition.ts";
import { configureGraphs as configure } from "../../../engine/models/model-graphs.ts";
import type { GraphOptions, ModelGraphs } from "../../../engine/models/model-graphs.ts";
import * as prompts from "../../../engine/models/prompt-dtype.ts";
import { chooseDefinition, shippedDefinitions } from "../../../engine/models/registry.ts";
import type { Checkpoint } from "../../../engine/weights/checkpoint.ts";

export const modelDefinitions: readonly ModelDefinition[] = await Promise.all(
  Object.values(shippedDefinitions).map((load) => load()),
);

/** As `loadShippedDefinition`, at once. */
export function findModelDefinition(config: unknown): ModelDefinition {
  const definition = chooseDefinition(modelDefinitions, config);
  if (definition === null) throw new Error(`No shipped definition is for ${JSON.stringify(config)}.`);
  return definition;
}

type Undefined<Value extends { readonly definition?: ModelDefinition }> = Omit<Value, "definition"> &
  Partial<Pick<Value, "definition">>;

export function configureGraphs(config: unknown, options: Undefined<GraphOptions>): ModelGraphs {
  return configure(config, { definition: findModelDefinition(config), ...options });
}

export function buildModel(checkpoint: Checkpoint, options: Undefined<BuildModelOptions>): Promise<BuiltModel> {
  return build(checkpoint, { definition: findModelDefinition(checkpoint.config), ...options });
}

type Settings<Resolve extends (settings: never, ...rest: never[]) => unknown> = Parameters<Resolve>[0];

export function resolveKvLayout(
  settings: Settings<typeof layouts.resolveKvLayout>,
  checkpoint: Pick<Checkpoint, "config" | "onnxFileNames">,
): ReturnType<typeof layouts.resolveKvLayout> {
  return layouts.resolveKvLayout(settings, defined(checkpoint));
}

export function resolveKvPrecision(
  settings: Settings<typeof layouts.resolveKvPrecision>,
  layout: ReturnType<typeof layouts.resolveKvLayout>,
  checkpoint: Pick<Checkpoint, "onnxFileNames"> & Partial<Pick<Checkpoint, "config">>,
): ReturnType<typeof layouts.resolveKvPrecision> {
  return layouts.resolveKvPrecision(settings, layout, "config" in checkpoint ? defined(checkpoint) : checkpoint);
}

export function resolvePromptDtype(
  settings: Settings<typeof prompts.resolvePromptDtype>,
  form: Parameters<typeof prompts.resolvePromptDtype>[1],
  checkpoint: Pick<Checkpoint, "config" | "onnxFileNames" | "tensors">,
  memoryBytes: number,
): ReturnType<typeof prompts.resolvePromptDtype> {
  return prompts.resolvePromptDtype(settings, form, defined(checkpoint), memoryBytes);
}

/** The definition is looked up when it is read, because some cases are refused without a look at their configuration. */
function defined<Given extends { readonly config?: unknown }>(checkpoint: Given) {
  const { config } = checkpoint;
  return {
    ...checkpoint,
    config,
    get definition() {
      return findModelDefinition(config);
    },
  };
}
