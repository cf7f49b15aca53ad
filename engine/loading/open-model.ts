/** Opens a model's folder: its checkpoint and tokenizer, and the adapter and the pipeline that the settings add. */
import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { MultiModalParts } from "../input/multimodal-inputs.ts";
import type { ModelDefinition } from "../models/model-definition.ts";
import { joinCheckpoints, withPipeline } from "../models/pipelines/with-pipeline.ts";
import { withModelOfRetriever } from "../models/retrieval/retriever.ts";
import { selectPipeline } from "../pipelines/select-pipeline.ts";
import type { PipelineConfig } from "../pipelines/select-pipeline.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { withNamedAdapters } from "../weights/adapters/adapter-set.ts";
import { withAdapter } from "../weights/adapters/merged-adapter.ts";
import { openCheckpoint } from "../weights/checkpoint.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";
import { withoutQuantisation } from "../weights/quantised/quantised-tensors.ts";
import { findDefinition } from "./find-definition.ts";
import type { DefinitionConfig } from "./find-definition.ts";
import type { ModelFolders } from "./resolve-model.ts";

/** `preprocessorConfig`: null for a checkpoint without one. */
type PreprocessorConfig = Pick<
  MultiModalParts,
  "preprocessorConfig" | "preprocessorFile" | "videoPreprocessorConfig" | "processorConfig"
>;

export interface OpenedModel {
  readonly checkpoint: Checkpoint;
  readonly definition: ModelDefinition;
  /** Name of the pipeline that gives the model its vision part; null if there is none. */
  readonly pipeline: string | null;
  /** Its first call reads the files. */
  loadTokenizer(this: void): Promise<Tokenizer>;
  readPreprocessorConfig(this: void): Promise<PreprocessorConfig>;
}

/**
 * @throws EngineError `invalid_checkpoint`, `unsupported_model`, or `invalid_configuration` for a definition that
 *   does not load, and for an adapter or a pipeline that does not go with the model.
 */
export async function openModel(
  { checkpoint: folder, adapter, namedAdapters }: ModelFolders,
  config: PipelineConfig & DefinitionConfig & Pick<EngineConfig, "cacheFolder">,
): Promise<OpenedModel> {
  const base = await openCheckpoint(folder, config);
  const merged = adapter === null ? base : await withAdapter(base, adapter, config);
  const checkpoint = withModelOfRetriever(await withNamedAdapters(merged, namedAdapters, config));
  const definition = await findDefinition(checkpoint.config, config);
  if (definition.images !== null) {
    if ((config.multimodalPipeline ?? null) !== null) {
      throw new EngineError(
        "invalid_configuration",
        `The pipeline ${config.multimodalPipeline} is for text models; ${definition.architecture} has a vision part of its own.`,
        { setting: "multimodalPipeline" },
      );
    }
    const imagePlaceholder = definition.imageSpelling?.imagePlaceholder ?? definition.imagePlaceholder;
    const placeholder =
      imagePlaceholder === undefined ? undefined : placeholderOf(imagePlaceholder, definition, checkpoint);
    return {
      checkpoint,
      definition,
      pipeline: null,
      loadTokenizer: () => loadTokenizer(folder, placeholder),
      readPreprocessorConfig: () => readPreprocessorConfig(checkpoint),
    };
  }
  const pipeline = await selectPipeline(config);
  if (pipeline === null) {
    return {
      checkpoint,
      definition,
      pipeline: null,
      loadTokenizer: () => loadTokenizer(folder),
      readPreprocessorConfig: async () => ({ preprocessorConfig: null }),
    };
  }
  const placeholder = placeholderOf(pipeline.imagePlaceholder, definition, checkpoint);
  return {
    checkpoint: await joinCheckpoints(checkpoint, pipeline, config.cacheFolder),
    definition: withPipeline(definition, pipeline),
    pipeline: pipeline.name,
    loadTokenizer: () => loadTokenizer(folder, placeholder),
    readPreprocessorConfig: async () => ({
      preprocessorConfig: pipeline.preprocessorConfig,
      preprocessorFile: `preprocessor_config.json of the pipeline ${pipeline.name}`,
    }),
  };
}

/** The token of a whole image, for a tokenizer that lacks it: outside of the vocabulary, because images take its place. */
function placeholderOf(imagePlaceholder: string, definition: ModelDefinition, { config }: Pick<Checkpoint, "config">) {
  const { vocabSize } = definition.configure(withoutQuantisation(config)).decoder;
  return { content: imagePlaceholder, firstFreeId: vocabSize };
}

/** Newer checkpoints keep it inside processor_config.json. As in transformers, that comes before an older file. */
async function readPreprocessorConfig(checkpoint: Checkpoint): Promise<PreprocessorConfig> {
  const newerFile = "processor_config.json";
  const newer = (await checkpoint.readJson(newerFile)) as {
    readonly image_processor?: unknown;
    readonly video_processor?: unknown;
  } | null;
  const videoPreprocessorConfig =
    newer?.video_processor ?? (await checkpoint.readJson("video_preprocessor_config.json"));
  const nested = newer?.image_processor ?? null;
  const others = { videoPreprocessorConfig, processorConfig: newer };
  if (nested !== null) return { preprocessorConfig: nested, preprocessorFile: newerFile, ...others };
  return { preprocessorConfig: await checkpoint.readJson("preprocessor_config.json"), ...others };
}
