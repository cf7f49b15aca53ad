/** Describes the engine that the settings and the checkpoint's headers would give, without building or starting it. */
import type { DtypeName, EngineConfig, ImageLimits } from "../contract/config.ts";
import { requireDeviceForCopies } from "../contract/data-parallel.ts";
import { defaultCacheConfig, itemsPerPrompt, takesOnlyEmbeddings } from "../contract/default-limits.ts";
import type { EngineDependencies } from "../contract/engine.ts";
import { draftObstacleOf, requireDrafts } from "../decoder/draft-obstacle.ts";
import { createDataUrlImageSource } from "../images/data-url-image-source.ts";
import { loadImageInputs } from "../input/multimodal-inputs.ts";
import type { GpuPlan } from "../kv/gpu-plan.ts";
import { keepsKvOnHost, planMemory } from "../kv/memory-plan.ts";
import type { MemoryPlan } from "../kv/memory-plan.ts";
import { loadGenerationDefaults } from "../loading/load-generation-defaults.ts";
import { openModel } from "../loading/open-model.ts";
import { resolveCopies } from "../loading/resolve-copies.ts";
import { resolveModel } from "../loading/resolve-model.ts";
import { resolveOutput } from "../loading/resolve-output.ts";
import { requireRoomForImage } from "../loading/room-for-image.ts";
import { resolveKvLayout, resolveKvPrecision } from "../models/kv-layout.ts";
import { planCheckpoint } from "../models/plan-checkpoint.ts";
import { resolvePromptDtype } from "../models/prompt-dtype.ts";
import type { VisionPart } from "../models/vision-parts.ts";
import { requireKernelsFor } from "../runtime/cuda-driver.ts";
import { keepWasmCode } from "../runtime/keep-wasm-code.ts";
import { machineMemoryBytes, memoryShareBytes } from "../runtime/machine-memory.ts";
import { tryLogitsProcessors } from "../sampling/custom/try-processors.ts";
import type { TriedLogitsProcessor } from "../sampling/custom/try-processors.ts";
import { loadChatTemplate } from "../text/chat-template.ts";
import { readQuantisation } from "../weights/quantised/quantised-tensors.ts";
import type { GpuInspection } from "./inspect-gpu.ts";
import { planCard, planKv } from "./plan-device-memory.ts";
import { measureWorstImage } from "./worst-image.ts";
import type { WorstImage } from "./worst-image.ts";

export interface ModelInspection {
  readonly architecture: string;
  /** Name of the pipeline that gives a text model its vision part; null if there is none. */
  readonly pipeline: string | null;
  /** What a LoRA adapter changes; null without one. */
  readonly adapter: string | null;
  /** LoRA adapters that requests may choose, with their largest ranks. */
  readonly adapters: readonly { readonly name: string; readonly rank: number }[];
  readonly dtype: Exclude<DtypeName, "auto">;
  /** How the checkpoint is quantised, such as "awq, 4 bits in groups of 128"; null if it is not. */
  readonly quantisation: string | null;
  /** Whether prompts and large batches are computed with 8-bit weights of their own. */
  readonly widensPrompts: boolean;
  /** Type and device of the vision tower and the projector; null without them, and for a ready-made export. */
  readonly visionParts: { readonly vision: VisionPart; readonly projector: VisionPart } | null;
  /** Hash of weights, configuration and dtype, as used in cache keys. */
  readonly contentHash: string;
  /** Maximum number of tokens per sequence. */
  readonly maxModelLen: number;
  /**
   * Sequences that run together: fewer than the settings allow if the host has no room for the KV of all; at least 1.
   */
  readonly maxNumSequences: number;
  /**
   * Copies of the model that an engine computes. The numbers above and the memory are those of each copy where the
   * settings give the number, and those of all together where they leave it open.
   */
  readonly numCopies: number;
  readonly vocabSize: number;
  /** Whether the model accepts conversations. */
  readonly hasChatTemplate: boolean;
  readonly memory: MemoryPlan;
  /** Memory of the host or its container. */
  readonly machineBytes: number;
  /**
   * Estimate for the decoder's GPU, with the bytes of its KV cache, which may be more than fit; null for another device,
   * and if the size of the GPU's memory is unknown.
   */
  readonly gpuPlan: (GpuPlan & { readonly kvBytes: number }) | null;
  /** Null if the model or the settings accept no images. */
  readonly worstImage: WorstImage | null;
  /** In the order in which they apply. */
  readonly logitsProcessors: readonly TriedLogitsProcessor[];
}

const withoutLimits = {
  maxImageBytes: Infinity,
  maxImagePixels: Number.MAX_SAFE_INTEGER,
  maxDecodeCost: Infinity,
  maxRequestDecodeCost: Infinity,
} as const satisfies Partial<ImageLimits>;

/**
 * Downloads a checkpoint like an engine would, and reads all weights once for their hash.
 *
 * @param gpu The GPU of the machine; null if it has none that is usable.
 * @throws EngineError `invalid_configuration`, `invalid_checkpoint`, `unsupported_model` or `aborted`, like loading.
 * Errors of logits processors are listed in the result instead.
 */
export async function inspectCheckpoint(
  config: EngineConfig,
  { createS3Client, onProgress }: Pick<EngineDependencies, "createS3Client" | "onProgress">,
  signal: AbortSignal,
  gpu: GpuInspection | null = null,
): Promise<ModelInspection> {
  keepWasmCode();
  const { maxNumBatchedTokens, imageLimits } = config;
  const folders = await resolveModel(config, { createS3Client, onProgress, signal });
  const opened = await openModel(folders, config);
  const { checkpoint } = opened;
  const defined = { ...checkpoint, definition: opened.definition };
  const output = await resolveOutput(config, opened);
  requireDeviceForCopies(config);
  const layout = resolveKvLayout(config, defined);
  const kvPrecision = resolveKvPrecision(config, layout, defined);
  const { definition, model, dtype, widensPrompts, visionParts, contentHash, maxModelLen, kvLayout, decoder, ...plan } =
    await planCheckpoint(checkpoint, {
      ...config,
      definition: opened.definition,
      output,
      kvLayout: layout,
      kvPrecision,
      widenedLayers: resolvePromptDtype(config, { layout, precision: kvPrecision }, defined, machineMemoryBytes()),
      signal,
    });
  const hasRecurrentLayers = model.decoder.recurrent !== undefined;
  const planOfDecoder = { device: config.device, kvLayout, hasRecurrentLayers, widensPrompts };
  requireDrafts(config.speculativeConfig ?? null, draftObstacleOf(planOfDecoder));
  if (config.device === "cuda" && gpu?.kind === "usable") requireKernelsFor(decoder.kvElementType, gpu.device);
  const { architecture } = definition;
  const tokenizer = await opened.loadTokenizer();
  const [preprocessor, logitsProcessors, chatTemplate] = await Promise.all([
    opened.readPreprocessorConfig(),
    tryLogitsProcessors(config),
    loadChatTemplate(folders.checkpoint, tokenizer.namedTokens, {
      ...config,
      familyTemplate: definition.chatTemplate,
      spellsImages: definition.spellsImages,
    }),
  ]);
  await using imageInputs = await loadImageInputs(
    // The model's own dummy picture is never too large.
    { ...config, imageLimits: { ...imageLimits, ...withoutLimits } },
    {
      definition,
      model: { ...model, contentHash },
      tokenizer,
      ...preprocessor,
      imageSources: [createDataUrlImageSource()],
    },
    signal,
  );
  const { vocabSize } = model.decoder;
  await loadGenerationDefaults(checkpoint, tokenizer, vocabSize);
  const accepted = itemsPerPrompt(config);
  const worstImage =
    imageInputs === null || (accepted.image === 0 && accepted.video === 0)
      ? null
      : await measureWorstImage(imageInputs, { tokenizer, vocabSize, maxModelLen, imageLimits }, signal);
  // Without images and videos, an engine does not load the vision encoder.
  const { weights } = plan.costs;
  const costs = worstImage === null ? { ...plan.costs, weights: { ...weights, visionEncoder: 0 } } : plan.costs;
  const weightBytes = costs.weights.embedding + costs.weights.decoder;
  const machineBytes = memoryShareBytes(config, { ...decoder, weightBytes });
  const ofEmbeddings = takesOnlyEmbeddings(config) ? imageInputs?.info.maxTokensPerItem : undefined;
  const maxEmbeddings = worstImage?.maxEmbeddings ?? ofEmbeddings ?? 0;
  const planned = { decoder, costs, weightBytes, maxModelLen, kvLayout, maxEmbeddings };
  const gpuPlan =
    config.device === "cuda" && gpu?.kind === "usable"
      ? planCard(config, planned, gpu.device, worstImage, visionParts?.vision.device ?? config.device)
      : null;
  const { blocks, slotBlocks, maxNumSequences } = planKv(config, planned, machineBytes, gpuPlan?.kvRoomBytes ?? 0);
  const copied = { decoder: { ...decoder, kvLayout, weightBytes }, maxLen: maxModelLen };
  const hasCustomProcessors = logitsProcessors.length > 0;
  const copy = resolveCopies(config, { ...copied, hasCustomProcessors });
  const { dataParallelSize: numCopies } = copy;
  if (model.decoder.keepsImagesWhole === true && maxEmbeddings > 0) {
    // A step is that of one copy.
    const numTogether = Math.min(maxNumSequences, copy.maxNumSequences);
    requireRoomForImage({ maxNumBatchedTokens, maxNumSequences: numTogether }, maxEmbeddings);
  }
  const memory = planMemory(decoder, costs, {
    numDividing: (config.dataParallelSize ?? null) === null ? numCopies : 1,
    maxNumSequences,
    maxNumBatchedTokens,
    maxModelLen,
    blocks,
    slotBlocks,
    maxEmbeddingsPerImage: maxEmbeddings,
    expectedEmbeddingsPerImage: worstImage?.numEmbeddings ?? 0,
    imageBytesPerSequence: worstImage === null ? 0 : worstImage.numBytes * worstImage.numFitting,
    processorCacheBytes: (config.caches ?? defaultCacheConfig).maxMemoryBytes,
  });
  return {
    architecture,
    pipeline: opened.pipeline,
    adapter: checkpoint.adapter ?? null,
    adapters: (checkpoint.adapters ?? []).map(({ name, rank }) => ({ name, rank })),
    dtype,
    widensPrompts,
    quantisation: checkpoint.onnxFileNames === null ? (readQuantisation(checkpoint.config)?.description ?? null) : null,
    visionParts: visionParts && { vision: typeOf(visionParts.vision), projector: typeOf(visionParts.projector) },
    contentHash,
    maxModelLen,
    maxNumSequences,
    numCopies,
    vocabSize,
    hasChatTemplate: chatTemplate !== null,
    memory,
    machineBytes,
    gpuPlan: gpuPlan && {
      ...gpuPlan,
      kvBytes: keepsKvOnHost(config.device, decoder) ? 0 : memory.kvCache.reservedBytes,
    },
    worstImage,
    logitsProcessors,
  };
}

function typeOf({ dtype, device }: VisionPart): VisionPart {
  return { dtype, device };
}
