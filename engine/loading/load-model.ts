/** Loads a model for the engine thread, together with the processor of its inputs. */
import { untilAborted } from "../concurrent-work.ts";
import type { EngineConfig } from "../contract/config.ts";
import { totalSequences } from "../contract/data-parallel.ts";
import {
  defaultCacheConfig,
  itemsPerPrompt,
  MAX_COUNTED_TOKENS,
  takesOnlyEmbeddings,
} from "../contract/default-limits.ts";
import type { EngineDependencies, ModelInfo } from "../contract/engine.ts";
import { timePhase } from "../contract/start-phase.ts";
import type { OnStartPhase } from "../contract/start-phase.ts";
import { visionDeviceOf } from "../core/session-options.ts";
import { createLargestImage, createWarmUpImage } from "../input/dummy-images.ts";
import { InputProcessor } from "../input/input-processor.ts";
import { loadImageInputs } from "../input/multimodal-inputs.ts";
import { OutputConstraints } from "../input/output-constraints.ts";
import { kvMemoryOf, requireRoomForSequences } from "../kv/memory-plan.ts";
import { planSlotBlocksOf } from "../kv/plan-slot-blocks.ts";
import { buildModel } from "../models/build-model.ts";
import type { BuiltModel } from "../models/built-model.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import { resolveKvLayout, resolveKvPrecision } from "../models/kv-layout.ts";
import { sampleText } from "../models/kv-steps/sample-text.ts";
import { resolvePromptDtype } from "../models/prompt-dtype.ts";
import type { ByteStore } from "../multimodal/caches/byte-store.ts";
import { MultiModalCaches } from "../multimodal/caches/multimodal-caches.ts";
import { machineMemoryBytes, memoryShareBytes } from "../runtime/machine-memory.ts";
import { numThreadsOf } from "../runtime/usable-cores.ts";
import { takeClasses } from "../sampling/custom/given-classes.ts";
import type { GivenLogitsProcessor } from "../sampling/custom/given-classes.ts";
import { findInstalledProcessors } from "../sampling/custom/installed-processors.ts";
import { loadLogitsProcessors } from "../sampling/custom/processor-loading.ts";
import type { LoadedLogitsProcessor } from "../sampling/custom/processor-loading.ts";
import { mostImageTokens } from "../scheduler/whole-images.ts";
import { loadChatTemplate } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { WorkerOptions } from "../thread/messages.ts";
import { preloadFiles } from "../weights/preload-files.ts";
import { loadGenerationDefaults } from "./load-generation-defaults.ts";
import { openModel } from "./open-model.ts";
import { resolveCopies } from "./resolve-copies.ts";
import type { CopyConfig } from "./resolve-copies.ts";
import { resolveModel } from "./resolve-model.ts";
import { resolveOutput, taskOf } from "./resolve-output.ts";
import { requireRoomForImage } from "./room-for-image.ts";

export interface LoadedModel extends AsyncDisposable {
  readonly modelInfo: ModelInfo;
  readonly inputProcessor: InputProcessor;
  /** Accepts longer prompts than the model; see `RenderOptions`. */
  readonly promptCounter: InputProcessor;
  readonly caches: MultiModalCaches;
  readonly tokenizer: Tokenizer;
  readonly outputConstraints: OutputConstraints;
  /** In the order of application. Each may validate the parameters of requests. */
  readonly logitsProcessors: readonly LoadedLogitsProcessor[];
  readonly workerOptions: WorkerOptions;
}

/**
 * Downloads, quantises and builds everything that is not yet in the cache folder. Throws EngineError
 * `invalid_configuration`, `invalid_logits_processor`, `invalid_checkpoint`, `unsupported_model` or `aborted`.
 */
export async function loadModel(
  config: EngineConfig,
  dependencies: EngineDependencies,
  signal: AbortSignal,
): Promise<LoadedModel> {
  const { imageSources, createS3Client, createByteStore, onProgress, logitsProcessors: classes = [] } = dependencies;
  const start = performance.now();
  /** Time of the phases that are reported apart from `build`. */
  let reportedSeconds = 0;
  const onPhase: OnStartPhase = (phase, seconds) => {
    reportedSeconds += seconds;
    dependencies.onPhase?.(phase, seconds);
  };
  await using parts = new AsyncDisposableStack();
  const source = { createS3Client, onProgress, signal };
  const folders = await timePhase("download", onPhase, () => resolveModel(config, source));
  const opened = await openModel(folders, config);
  const { checkpoint, definition, pipeline } = opened;
  const loadingTokenizer = opened.loadTokenizer();
  loadingTokenizer.catch(() => {});
  const output = await resolveOutput(config, { checkpoint, loadTokenizer: () => loadingTokenizer });
  const task = taskOf(output);
  const defined = { ...checkpoint, definition };
  const kvLayout = resolveKvLayout(config, defined);
  const kvPrecision = resolveKvPrecision(config, kvLayout, defined);
  const widenedLayers = resolvePromptDtype(
    config,
    { layout: kvLayout, precision: kvPrecision },
    defined,
    // Of copies, too: they share their weights.
    machineMemoryBytes(),
  );
  const sampleTokens = async (): Promise<number[]> =>
    (await (await loadingTokenizer).encode(sampleText, { addSpecialTokens: true, signal })) ?? [];
  const onWeightFiles = (paths: readonly string[]): void => {
    // Not awaited: sessions are created meanwhile.
    if (config.preload === true) void timePhase("preload", dependencies.onPhase, () => preloadFiles(paths, signal));
  };
  const [model, tokenizer, preprocessor, logitsProcessors] = await Promise.all([
    buildModel(checkpoint, {
      ...config,
      definition,
      output,
      kvLayout,
      kvPrecision,
      widenedLayers,
      sampleTokens,
      numThreads: numThreadsOf(config),
      signal,
      onPhase,
      onWeightFiles,
      ...(onProgress && { onProgress }),
    }),
    loadingTokenizer,
    opened.readPreprocessorConfig(),
    // They change logits of whole vocabularies.
    task !== "generate" ? [] : loadAllLogitsProcessors(config, classes),
  ]);
  const { chatTemplate: familyTemplate, spellsImages } = definition;
  const ofFamily = { familyTemplate, spellsImages };
  const chatTemplate = await loadChatTemplate(folders.checkpoint, tokenizer.namedTokens, { ...config, ...ofFamily });
  signal.throwIfAborted();

  const { vocabSize } = model.decoder;
  const defaults = await loadGenerationDefaults(checkpoint, tokenizer, vocabSize);
  const { samplingParams, eosTokenIds, ...suppressed } = defaults;
  const maxModelLen = config.maxModelLen ?? model.maxPositionEmbeddings;
  const hasCustomProcessors = logitsProcessors.length > 0;
  const copy = resolveCopies(config, { decoder: model.decoder, maxLen: maxModelLen, hasCustomProcessors });
  const { dataParallelSize: numCopies } = copy;
  const maxNumSequences = numSequencesOf(copy, model.decoder, maxModelLen);
  const outputConstraints = parts.use(new OutputConstraints({ tokenizer, vocabSize, eosTokenIds, ...suppressed }));
  const { architecture } = model;
  const store = model.visionEncoder === null || !createByteStore ? null : await openByteStore(createByteStore, signal);
  const caches = new MultiModalCaches(config.caches ?? defaultCacheConfig, store);
  parts.defer(() => caches.close());
  const imageInputs = parts.use(
    await loadImageInputs(
      config,
      {
        definition,
        model,
        tokenizer,
        ...preprocessor,
        imageSources,
        caches,
      },
      signal,
    ),
  );
  const { largestExpectedImage: expected } = config.imageLimits;
  const accepted = itemsPerPrompt(config);
  const servedImages = accepted.image > 0 || accepted.video > 0 ? imageInputs : null;
  const tokens = { tokenizer, vocabSize };
  const warmUpImage =
    config.warmUp === true && servedImages !== null ? await createWarmUpImage(servedImages, tokens, signal) : null;
  const largestImage =
    servedImages !== null && visionDeviceOf(config, model) === "cuda"
      ? await createLargestImage(servedImages, { expected, ...tokens }, signal)
      : null;
  onPhase("build", (performance.now() - start) / 1000 - reportedSeconds);
  const servedEmbeddings = servedImages ?? (takesOnlyEmbeddings(config) ? imageInputs : null);
  if (model.decoder.keepsImagesWhole === true && servedEmbeddings !== null) {
    requireRoomForImage({ ...config, maxNumSequences }, servedEmbeddings.info.maxTokensPerItem);
  }
  const maxJoinedTokens =
    model.decoder.joinsImages === true ? mostImageTokens(config.maxNumBatchedTokens, maxNumSequences) : null;
  const imagePlaceholder = imageInputs?.processor.imagePlaceholder ?? null;
  const imageAdapter = config.loraModules?.find(({ isDefaultForImages }) => isDefaultForImages === true)?.name;
  const inputs = {
    ...tokens,
    chatTemplate,
    imageInputs,
    imageLimits: config.imageLimits,
    addAllImages: config.addAllImagesToPrompt ?? true,
    maxModelLen,
  };
  return {
    modelInfo: {
      architecture,
      maxModelLen,
      maxNumSequences: totalSequences({ ...copy, maxNumSequences }),
      vocabSize,
      task,
      embeddingSize: task === "embed" || task === "token_embed" ? outputWidthOf(model.decoder) : null,
      acceptsImages: servedImages !== null && accepted.image > 0,
      acceptsVideos: servedImages !== null && accepted.video > 0,
      hasChatTemplate: chatTemplate !== null,
      chatTemplate: chatTemplate?.forTools.source ?? null,
      eosTokenIds,
      specialTokens: {
        ...tokenizer.namedTokens,
        ...(imagePlaceholder !== null && { image_token: imagePlaceholder }),
      },
      defaultSamplingParams: samplingParams,
      logitsProcessors: logitsProcessors.map(({ name }) => name),
      ...(pipeline !== null && { pipeline }),
      ...(checkpoint.adapters !== undefined && { adapters: checkpoint.adapters.map(({ name }) => name) }),
      ...(imageAdapter !== undefined && { imageAdapter }),
    },
    inputProcessor: new InputProcessor({ ...inputs, ...(maxJoinedTokens !== null && { maxJoinedTokens }) }),
    promptCounter: new InputProcessor({
      ...inputs,
      maxModelLen: Math.max(maxModelLen, MAX_COUNTED_TOKENS),
      servedModelLen: maxModelLen,
    }),
    caches,
    tokenizer,
    outputConstraints,
    logitsProcessors,
    workerOptions: {
      config: {
        ...copy,
        maxNumSequences,
        // Of all requests that the engine admits, one copy may get the whole of several choices.
        maxNumWaiting: config.maxNumWaiting + (numCopies - 1) * maxNumSequences,
        logitsProcessors: logitsProcessors.map(({ reference }) => reference),
      },
      // Prompts are the same with and without images; only the memory of the encoder is saved.
      model: servedImages === null ? { ...model, visionEncoder: null } : model,
      maxModelLen,
      eosTokenIds,
      // Joined images are encoded and computed like one.
      maxEmbeddingsPerImage:
        servedEmbeddings === null ? 0 : (maxJoinedTokens ?? servedEmbeddings.info.maxTokensPerItem),
      // On a GPU, encoding a picture again costs less than copying its embeddings to the host every time.
      wantsEmbeddings: config.device === "cpu" ? caches.encoder.tiers.length > 0 : caches.report.store !== null,
      warmUpImage,
      largestImage,
    },
    [Symbol.asyncDispose]: disposeOf(parts.move()),
  };
}

/** Sequences share the blocks of a paged cache, and those of slots where the system can give pages back. */
function numSequencesOf(config: CopyConfig, decoder: BuiltModel["decoder"], maxLen: number): number {
  const { device, maxNumSequences, kvCacheMemoryBytes } = config;
  const isPaged = decoder.form === "in-place" && decoder.kvLayout.kind === "paged";
  if (isPaged) return maxNumSequences;
  const shared = planSlotBlocksOf(config, decoder, maxLen);
  if (shared !== null) return shared.numSlots;
  const { weightBytes } = decoder;
  const host = {
    weightBytes,
    machineBytes: memoryShareBytes(config, decoder),
    numCopies: config.dataParallelSize,
    maxKvBytes: kvCacheMemoryBytes,
  };
  const memory = kvMemoryOf(device, decoder, host);
  return requireRoomForSequences(decoder, { maxNumSequences, maxLen }, memory);
}

function disposeOf(parts: AsyncDisposableStack): () => Promise<void> {
  return () => parts.disposeAsync();
}

/** In this order: installed packages, settings, classes. */
async function loadAllLogitsProcessors(
  { logitsProcessors, logitsProcessorPath }: EngineConfig,
  classes: readonly GivenLogitsProcessor[],
): Promise<LoadedLogitsProcessor[]> {
  const installed = await findInstalledProcessors(logitsProcessorPath);
  const named = await loadLogitsProcessors([...installed, ...logitsProcessors], logitsProcessorPath);
  return [...named, ...takeClasses(classes)];
}

/** Waits until the engine is closed at most: a connection may take long. A store that comes later is closed. */
async function openByteStore(create: () => Promise<ByteStore>, signal: AbortSignal): Promise<ByteStore> {
  const opening = create();
  try {
    return await untilAborted(opening, signal);
  } catch (error) {
    void opening.then((store) => store.close()).catch(() => undefined);
    throw error;
  }
}
