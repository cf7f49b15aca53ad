/** Assembles the parts of an engine thread. */
import type { OnStartPhase } from "../contract/start-phase.ts";
import { requireDrafts } from "../decoder/draft-obstacle.ts";
import { planEncoderCache } from "../kv/memory-plan.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import type { AddedSequence } from "../sampling/built-in/added-sequence.ts";
import { createBuiltInProcessors } from "../sampling/built-in/built-in-processors.ts";
import { CustomProcessor } from "../sampling/custom/custom-processor.ts";
import { createLogitsProcessor, loadLogitsProcessors } from "../sampling/custom/processor-loading.ts";
import { ProcessorChain } from "../sampling/processor-chain.ts";
import { Sampler } from "../sampling/sampler.ts";
import { StepLogits } from "../sampling/step-logits.ts";
import { Scheduler } from "../scheduler/scheduler.ts";
import { fewestStepTokens } from "../scheduler/whole-images.ts";
import { GrammarLogitsProcessor } from "../structured-output/grammar-logits-processor.ts";
import type { ToEngineThread, WorkerOptions } from "../thread/messages.ts";
import { StepProgress } from "../thread/step-progress.ts";
import { BackgroundEncoder } from "../vision/background-encoder.ts";
import { EncoderCache } from "../vision/encoder-cache.ts";
import { EngineCore } from "./engine-core.ts";
import { loadGraphs } from "./load-graphs.ts";
import { ModelRunner } from "./model-runner.ts";
import { Pooler } from "./pooler.ts";
import { encodesOnHost } from "./session-options.ts";
import { warmUp } from "./warm-up.ts";

/**
 * Where prompts run after the decodes, a second long prompt in a step only delays the tokens of all other sequences. Short
 * prompts share a step, because each step costs a run of the decodes.
 */
const PROMPT_TOKENS_OF_STEP = 64;

/**
 * Loads logits processors and sessions, and warms up if the settings say so.
 *
 * @param takeMessages See `EngineCore`.
 * @param progress Receives the progress of each step.
 * @param onPhase Receives the times of `load`, `first_step` and `first_image`.
 * @throws EngineError `invalid_logits_processor`, `invalid_configuration` for KV that does not fit, `runtime_failed`
 * for graphs that do not load.
 */
export async function createEngineCore(
  options: WorkerOptions,
  takeMessages: () => readonly ToEngineThread[],
  progress: StepProgress = new StepProgress(),
  onPhase?: OnStartPhase,
): Promise<EngineCore> {
  const start = performance.now();
  const { config, maxModelLen } = options;
  const { decoder: graph } = options.model;
  const processors = await createProcessors(options, progress);
  using loaded = new DisposableStack();
  const { decoder, kvManager, visionEncoder } = loadGraphs(options);
  loaded.use(decoder);
  loaded.use(visionEncoder);
  requireDrafts(config.speculativeConfig ?? null, decoder.draftObstacle);
  const { maxNumEmbeddings } = planEncoderCache(graph.imageWidth, options.maxEmbeddingsPerImage);
  const encoderCache = new EncoderCache(maxNumEmbeddings, (embeddings) => {
    if ("firstRow" in embeddings) decoder.featurePool?.release(embeddings);
  });
  const backgroundEncoder =
    visionEncoder !== null && (options.encodesInBackground ?? encodesOnHost(config, options.model))
      ? new BackgroundEncoder(visionEncoder, progress)
      : null;
  const logits = new StepLogits(config.maxNumSequences, outputWidthOf(graph));
  const createCore = (chain: ProcessorChain, take: () => readonly ToEngineThread[]): EngineCore => {
    const eosTokenIds = new Set(options.eosTokenIds);
    const scheduler = new Scheduler({
      ...config,
      maxModelLen,
      eosTokenIds,
      kvManager,
      encoderCache,
      encodesInBackground: backgroundEncoder !== null,
      keepsImagesWhole: graph.keepsImagesWhole,
      joinsImages: graph.joinsImages,
      widensPrompts: graph.widensPrompts,
      checksDrafts: decoder.draftObstacle === null,
      fewestStepTokens:
        graph.keepsImagesWhole === true ? fewestStepTokens(options.maxEmbeddingsPerImage, config.maxNumSequences) : 1,
      enoughPromptTokens: decoder.runsPromptsApart ? PROMPT_TOKENS_OF_STEP : undefined,
    });
    const runner = new ModelRunner({
      decoder,
      visionEncoder: backgroundEncoder === null ? visionEncoder : null,
      backgroundEncoder,
      encoderCache,
      processors: chain,
      sampler: config.runner === "pooling" ? new Pooler(logits) : new Sampler(chain, logits),
      logits,
      imageWidth: graph.imageWidth,
      imageRuns: graph,
      progress,
    });
    return new EngineCore({ scheduler, runner, takeMessages: take, progress });
  };
  onPhase?.("load", (performance.now() - start) / 1000);
  if (config.warmUp === true) {
    const withoutCustom = createChain(options, [], progress);
    const tokenId = options.eosTokenIds[0] ?? 0;
    onPhase?.(
      "first_step",
      warmUp((take) => createCore(withoutCustom, take), { maxModelLen, tokenId }),
    );
    if (visionEncoder !== null && options.warmUpImage !== null) {
      const imageStart = performance.now();
      visionEncoder.encode(options.warmUpImage);
      onPhase?.("first_image", (performance.now() - imageStart) / 1000);
    }
  }
  const core = createCore(processors, takeMessages);
  loaded.move();
  return core;
}

async function createProcessors(options: WorkerOptions, progress: StepProgress): Promise<ProcessorChain> {
  const { config } = options;
  const loadedProcessors = await loadLogitsProcessors(config.logitsProcessors, config.logitsProcessorPath);
  const custom = loadedProcessors.map(
    (loaded) => new CustomProcessor(loaded.name, () => createLogitsProcessor(loaded, config)),
  );
  return createChain(options, custom, progress);
}

function createChain(
  { config, eosTokenIds, model }: WorkerOptions,
  custom: readonly CustomProcessor[],
  progress: StepProgress,
): ProcessorChain {
  const grammars = new GrammarLogitsProcessor(config, {
    vocabSize: model.decoder.vocabSize,
    // The batch contains sequences only.
    grammarOf: (request) => (request as AddedSequence).grammar,
  });
  return new ProcessorChain(createBuiltInProcessors(config, eosTokenIds, grammars), custom, progress);
}
