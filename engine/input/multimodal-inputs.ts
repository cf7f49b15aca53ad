/** Puts together how a loaded model takes images: its own registered parts, the pixel threads, sources and caches. */
import { EngineError } from "../errors.ts";
import { createImageProcessor } from "../images/image-processor.ts";
import { parsePreprocessorConfig } from "../images/preprocessor-config.ts";
import { createPromptText } from "./input-processor.ts";
import { ItemLoader } from "./item-loader.ts";
import { requestOptions } from "./request-options.ts";
import type { EngineConfig } from "../config.ts";
import type { ImageProcessor } from "../images/image-processor.ts";
import type { ImageSource } from "../images/image-source.ts";
import type { ImageInputs } from "./input-processor.ts";
import type { ItemCaches } from "./item-loader.ts";
import type { BuiltModel } from "../models/built-model.ts";
import type { ModelDefinition, ProcessorContext } from "../models/model-definition.ts";
import type { DummyInputsBuilder } from "../multimodal/dummy-inputs.ts";
import type { PixelProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

export interface MultiModalParts {
  readonly definition: ModelDefinition;
  readonly model: Pick<BuiltModel, "imageTokenId" | "contentHash"> & {
    /** Null where the model takes no images; whether its graph is written yet does not matter here. */
    readonly visionEncoder: ProcessorContext["visionEncoder"] | null;
    readonly decoder: Pick<BuiltModel["decoder"], "hiddenSize">;
  };
  readonly tokenizer: Tokenizer;
  /** preprocessor_config.json, or what stands for it; null for a checkpoint without one. */
  readonly preprocessorConfig: unknown;
  readonly imageSources: readonly ImageSource[];
  /** Without one every image is processed anew. */
  readonly caches?: ItemCaches;
}

/** Disposing of it ends the threads. */
export interface LoadedImageInputs extends ImageInputs, AsyncDisposable {
  readonly dummyInputs: DummyInputsBuilder;
}

/** Null for a model that takes no images. Throws EngineError `invalid_checkpoint` or `unsupported_model`. */
export function createImageInputs(
  {
    imageLimits,
    enableMmEmbeds = false,
    mmProcessorOptions,
  }: Pick<EngineConfig, "imageLimits" | "enableMmEmbeds" | "mmProcessorOptions">,
  { definition, model, tokenizer, preprocessorConfig, imageSources, caches = noCaches }: MultiModalParts,
): LoadedImageInputs | null {
  const { visionEncoder, imageTokenId } = model;
  const { multiModal, architecture } = definition;
  if (visionEncoder === null || imageTokenId === null) return null;
  if (multiModal === undefined) {
    throw new EngineError("unsupported_model", `No processor of images is registered for ${architecture}.`);
  }
  const { pixelProgram } = multiModal;
  if (preprocessorConfig === null && pixelProgram === undefined) {
    throw new EngineError("invalid_checkpoint", "The checkpoint has no preprocessor_config.json.");
  }
  const imageToken = tokenizer.token(imageTokenId);
  if (imageToken === null) {
    throw new EngineError("invalid_checkpoint", `tokenizer.json has no token for the image token id ${imageTokenId}.`);
  }
  const imageProcessor = createImageProcessor(pixelProgram === undefined ? preprocessorConfig : null, imageLimits);
  const context: ProcessorContext = {
    imageToken,
    imageTokenId,
    visionEncoder,
    preprocessorConfig: (preprocessorConfig ?? {}) as ProcessorOptions,
    pixels: createPixelProcessor(imageProcessor, pixelProgram),
    tokenId: (token) => tokenizer.tokenId(token),
  };
  const info = multiModal.createProcessingInfo(context);
  const registered = multiModal.createProcessor(info, context);
  const processor = { ...registered, options: requestOptions(registered, mmProcessorOptions) };
  const loader = new ItemLoader({
    processor,
    info,
    sources: imageSources,
    caches,
    limits: imageLimits,
    promptText: createPromptText(tokenizer),
    modelContentHash: model.contentHash,
    hiddenSize: model.decoder.hiddenSize,
  });
  return {
    info,
    processor,
    loader,
    enableMmEmbeds,
    dummyInputs: multiModal.createDummyInputs(info, context),
    [Symbol.asyncDispose]: () => imageProcessor.close(),
  };
}

const noCaches: ItemCaches = {
  processor: {
    getMany: async (mmHashes) => mmHashes.map(() => null),
    getOrProcess: (mmHashes, processMissing) => processMissing(mmHashes),
  },
  source: { getMany: async (keys) => keys.map(() => null), setMany: () => {} },
};

function createPixelProcessor(imageProcessor: ImageProcessor, program: URL | undefined): PixelProcessor {
  return {
    async process({ bytes, parameter }, options, signal) {
      try {
        if (program !== undefined) {
          return await imageProcessor.runProgram(bytes, signal, { module: program.href, options });
        }
        const plan = parsePreprocessorConfig(options);
        const { pixelValues, shape, imageSize } = await imageProcessor.process(bytes, signal, plan);
        const tensor = { elementType: "float32", shape, data: pixelValues } as const;
        return { tensors: new Map([["pixel_values", tensor]]), imageSize };
      } catch (error) {
        if (!(error instanceof EngineError)) throw error;
        throw new EngineError(error.code, error.message, { cause: error, parameter });
      }
    },
  };
}
