/** Assembles the image inputs of a loaded model: its registered parts, the pixel threads, sources and caches. */
import type { EngineConfig } from "../contract/config.ts";
import { defaultDocumentLimits, defaultVideoLimitsFor } from "../contract/default-limits.ts";
import { EngineError, invariant, namingParameter } from "../contract/errors.ts";
import { createDocumentReader } from "../documents/document-reader.ts";
import { shown } from "../excerpt.ts";
import { createImageProcessor } from "../images/image-processor.ts";
import type { ImageProcessor } from "../images/image-processor.ts";
import type { ImageSource } from "../images/image-source.ts";
import { parsePreprocessorConfig, plannedSize } from "../images/preprocessor-config.ts";
import type { PreprocessorPlan } from "../images/preprocessor-config.ts";
import type { BuiltModel } from "../models/built-model.ts";
import type { ModelDefinition, ProcessorContext } from "../models/model-definition.ts";
import { checkProcessingInfo, checkProcessor } from "../multimodal/check-inputs.ts";
import { createDummyInputsBuilder, dummyPicture } from "../multimodal/dummy-inputs.ts";
import type { DummyInputsBuilder } from "../multimodal/dummy-inputs.ts";
import type { MultiModalInputs, PixelProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import { withNamedErrors } from "../multimodal/named-errors.ts";
import { processImages } from "../multimodal/process-items.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { createVideoDecoder } from "../videos/video-decoder.ts";
import { DocumentLoader } from "./document-loader.ts";
import { imageBudgets } from "./image-budgets.ts";
import type { ImageInputs } from "./image-inputs.ts";
import { ItemLoader } from "./item-loader.ts";
import type { ItemCaches } from "./item-loader.ts";
import { deploymentOptions, isAboutOptions, noImageProcessor, optionsError } from "./request-options.ts";
import { createPromptText } from "./tokenize-prompt.ts";
import { VideoFiles } from "./video-files.ts";
import { VideoLoader } from "./video-loader.ts";

export interface MultiModalParts {
  readonly definition: Pick<ModelDefinition, "architecture" | "images" | "imagePlaceholder" | "imageSpelling">;
  readonly model: Pick<BuiltModel, "imageTokenId" | "contentHash"> & {
    /** Null if the model does not accept images. Its graph may not be written yet. */
    readonly visionEncoder: ProcessorContext["visionEncoder"] | null;
    readonly decoder: Pick<BuiltModel["decoder"], "imageWidth">;
  };
  readonly tokenizer: Tokenizer;
  /** preprocessor_config.json or its replacement; null for a checkpoint without one. */
  readonly preprocessorConfig: unknown;
  /** The file that it comes from, for errors. Default: preprocessor_config.json. */
  readonly preprocessorFile?: string;
  /** `video_processor` of processor_config.json, or video_preprocessor_config.json; null without one. Default null. */
  readonly videoPreprocessorConfig?: unknown;
  /** processor_config.json; null without one. Default null. */
  readonly processorConfig?: unknown;
  readonly imageSources: readonly ImageSource[];
  /** Without caches, every image is processed each time. */
  readonly caches?: ItemCaches;
}

/** Disposing of it ends the threads. */
export interface LoadedImageInputs extends ImageInputs, AsyncDisposable {
  readonly dummyInputs: DummyInputsBuilder;
}

/**
 * Returns null for a model that does not accept images. Throws EngineError `invalid_checkpoint` or `unsupported_model`,
 * and `invalid_configuration` for settings that the model's image processor does not support.
 */
export function createImageInputs(
  {
    imageLimits,
    enableMmEmbeds = false,
    mmProcessorOptions,
    videoLimits = defaultVideoLimitsFor(imageLimits),
    documentLimits = defaultDocumentLimits,
  }: Pick<EngineConfig, "imageLimits" | "videoLimits" | "documentLimits" | "enableMmEmbeds" | "mmProcessorOptions">,
  {
    definition,
    model,
    tokenizer,
    preprocessorConfig,
    preprocessorFile = "preprocessor_config.json",
    videoPreprocessorConfig = null,
    processorConfig = null,
    imageSources,
    caches = noCaches,
  }: MultiModalParts,
): LoadedImageInputs | null {
  const { visionEncoder, imageTokenId } = model;
  if (visionEncoder === null || imageTokenId === null) {
    deploymentOptions(noImageProcessor, mmProcessorOptions ?? {});
    return null;
  }
  const { images, imageSpelling } = definition;
  if (images === null) {
    throw new EngineError("unsupported_model", `No image processor is registered for ${definition.architecture}.`);
  }
  const { pixelProgram } = images;
  if (preprocessorConfig === null && pixelProgram === undefined) {
    throw new EngineError("invalid_checkpoint", "The checkpoint has no preprocessor_config.json.");
  }
  const otherPlaceholder = imageSpelling?.imagePlaceholder ?? definition.imagePlaceholder;
  const imageToken = otherPlaceholder ?? tokenizer.token(imageTokenId);
  if (imageToken === null) {
    throw new EngineError("invalid_checkpoint", `tokenizer.json has no token for the image token id ${imageTokenId}.`);
  }
  const placeholderTokenId = otherPlaceholder === undefined ? imageTokenId : tokenizer.tokenId(imageToken);
  invariant(placeholderTokenId !== null, "a placeholder is added to a tokenizer that lacks it");
  const imageProcessor = createImageProcessor(imageLimits);
  const context: ProcessorContext = {
    imageToken,
    imageTokenId,
    visionEncoder,
    preprocessorConfig: { ...optionsOf(preprocessorConfig, preprocessorFile), ...visionEncoder.imageOptions },
    videoPreprocessorConfig: isObject(videoPreprocessorConfig) ? (videoPreprocessorConfig as ProcessorOptions) : null,
    ...(isObject(processorConfig) && { processorConfig: processorConfig as ProcessorOptions }),
    namedTokens: tokenizer.namedTokens,
    pixels: createPixelProcessor(imageProcessor, pixelProgram),
    placeholderTokenId,
    tokenId: (token) => tokenizer.tokenId(token),
  };
  const ofCheckpoint =
    preprocessorConfig === null
      ? followingDefaults(() => connect(images, context))
      : followingFile(preprocessorFile, () => connect(images, context));
  const { info, processor: ofModel, dummyInputs } = changedBySettings(ofCheckpoint, mmProcessorOptions);
  const processor = imageSpelling ? { ...ofModel, markers: imageSpelling, placesImagesInText: true } : ofModel;
  const decoder = createVideoDecoder(videoLimits);
  const videoFiles = new VideoFiles({
    decoder,
    images: imageProcessor,
    sources: imageSources,
    knownVideos: caches.video,
    limits: videoLimits,
  });
  const videos = new VideoLoader({
    files: videoFiles,
    processor,
    limits: videoLimits,
    maxDecodedBytes: imageBudgets(machineMemoryBytes()).maxDecodedBytes,
  });
  const reader = createDocumentReader(documentLimits);
  const documents = new DocumentLoader({ reader, sources: imageSources, limits: documentLimits, imageLimits });
  const loader = new ItemLoader({
    processor,
    videos,
    pixels: context.pixels,
    info,
    sources: imageSources,
    caches,
    limits: imageLimits,
    promptText: createPromptText(tokenizer),
    modelContentHash: model.contentHash,
    hiddenSize: model.decoder.imageWidth,
  });
  return {
    imageTokenId,
    info,
    processor,
    loader,
    videos,
    documents,
    enableMmEmbeds,
    dummyInputs,
    async [Symbol.asyncDispose]() {
      await Promise.all([imageProcessor.close(), decoder.close(), reader.close()]);
    },
  };
}

/**
 * Like `createImageInputs`, and also processes a picture with the settings' options, so that an unsupported option is
 * reported before anything is served. Throws EngineError `invalid_configuration` for such an option.
 */
export async function loadImageInputs(
  config: Parameters<typeof createImageInputs>[0],
  parts: MultiModalParts,
  signal: AbortSignal,
): Promise<LoadedImageInputs | null> {
  const inputs = createImageInputs(config, parts);
  if (inputs === null || Object.keys(config.mmProcessorOptions ?? {}).length === 0) return inputs;
  const { processor, dummyInputs } = inputs;
  const [size] = dummyInputs.build(1, { width: CHECKED_EDGE, height: CHECKED_EDGE }).imageSizes;
  const picture = { bytes: dummyPicture(size!), parameter: "mmProcessorOptions" };
  const settings = { options: processor.options, promptText: createPromptText(parts.tokenizer), signal };
  try {
    await processImages(processor, [picture], settings);
    return inputs;
  } catch (error) {
    await inputs[Symbol.asyncDispose]();
    throw isAboutOptions(error) ? optionsError(error.message, error) : error;
  }
}

/** In pixels; small enough for every limit. */
const CHECKED_EDGE = 32;

interface ConnectedInputs extends Pick<LoadedImageInputs, "info" | "processor" | "dummyInputs"> {
  readonly registered: MultiModalInputs<ProcessorContext>;
  readonly context: ProcessorContext;
}

function connect(registered: MultiModalInputs<ProcessorContext>, context: ProcessorContext): ConnectedInputs {
  const info = registered.createProcessingInfo(context);
  checkProcessingInfo(info);
  const processor = withNamedErrors(registered.createProcessor(info, context));
  checkProcessor(processor);
  processor.checkOptions(context.preprocessorConfig);
  const dummyInputs =
    registered.createDummyInputs?.(info, context) ??
    createDummyInputsBuilder(processor.imagePlaceholder ?? "", info.imageSizeWithMostFeatures);
  return { registered, context, info, processor, dummyInputs };
}

/** Newer checkpoints have processor_config.json, with the options below `image_processor`. */
function optionsOf(preprocessorConfig: unknown, fileName: string): ProcessorOptions {
  if (preprocessorConfig === null) return {};
  if (!isObject(preprocessorConfig)) throw noObject(preprocessorConfig, fileName);
  const nested = "image_processor" in preprocessorConfig ? preprocessorConfig.image_processor : null;
  if (nested === null) return preprocessorConfig as ProcessorOptions;
  if (!isObject(nested)) throw noObject(nested, fileName);
  return nested as ProcessorOptions;
}

/** Errors about an option of the checkpoint name its file. */
function followingFile<Result>(fileName: string, run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    if (!isAboutOptions(error) || error.parameter === null) throw error;
    throw new EngineError(error.code, `${fileName}: ${error.message}`, { cause: error });
  }
}

/** For a checkpoint without a file of its image processor. */
function followingDefaults<Result>(run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const problem =
      "The checkpoint has no preprocessor_config.json, and the defaults of its image processor do not fit.";
    throw new EngineError(error.code, `${problem} ${error.message}`, { cause: error });
  }
}

/** The predicted input sizes also depend on the options, so everything is created again. */
function changedBySettings(inputs: ConnectedInputs, changes: EngineConfig["mmProcessorOptions"] = {}): ConnectedInputs {
  if (Object.keys(changes).length === 0) return inputs;
  const preprocessorConfig = deploymentOptions(inputs.processor, changes);
  try {
    return connect(inputs.registered, { ...inputs.context, preprocessorConfig });
  } catch (error) {
    throw isAboutOptions(error) ? optionsError(error.message, error) : error;
  }
}

const noCaches: ItemCaches = {
  processor: {
    getMany: async (mmHashes) => mmHashes.map(() => null),
    getOrProcess: (mmHashes, processMissing) => processMissing(mmHashes),
  },
  source: { getMany: async (keys) => keys.map(() => null), setMany: () => {} },
  video: { getMany: async (keys) => keys.map(() => null), setMany: () => {} },
};

function createPixelProcessor(imageProcessor: ImageProcessor, program: URL | undefined): PixelProcessor {
  /** By options. Requests without options of their own share the checkpoint's object. */
  const plans = new WeakMap<ProcessorOptions, PreprocessorPlan>();
  const planOf = (options: ProcessorOptions): PreprocessorPlan => {
    const plan = plans.get(options) ?? parsePreprocessorConfig(options);
    plans.set(options, plan);
    return plan;
  };
  const processOne: PixelProcessor["process"] = async (image, options, signal) => {
    if (program !== undefined) return imageProcessor.runProgram(image, { module: program.href, options }, signal);
    const plan = planOf(options);
    const { pixelValues, shape, imageSize } = await imageProcessor.process(image, plan, signal);
    const tensor = { elementType: "float32", shape, data: pixelValues } as const;
    return { tensors: new Map([["pixel_values", tensor]]), imageSize };
  };
  return {
    outputSize(options) {
      if (program !== undefined) return null;
      const plan = planOf(options);
      const size = plannedSize(plan);
      return size === null ? null : { ...size, option: plan.centerCrop === null ? "size" : "crop_size" };
    },
    inspect: (image, signal) => namingParameter(image.parameter, () => imageProcessor.readHeader(image, signal)),
    process: (image, options, signal) =>
      namingParameter(image.parameter, async () => {
        const processed = await processOne(image, options, signal);
        image.onProcessed?.(processed.tensors);
        return processed;
      }),
  };
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function noObject(value: unknown, fileName: string): EngineError {
  return new EngineError("invalid_checkpoint", `${fileName} is ${shown(value)}; expected an object.`);
}
