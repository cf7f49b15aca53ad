/** The one error class of the engine and its closed list of codes. HTTP statuses are chosen outside. */

export type EngineErrorCode =
  /** A field of the request has a value that the engine does not support; `parameter` names it. */
  | "invalid_argument"
  | "prompt_too_long"
  | "too_many_images"
  /** The image reference is malformed, of an unknown scheme, or not allowed. */
  | "invalid_image_reference"
  /** The image could not be fetched: connection refused, not found, timed out, no permission. */
  | "image_unreachable"
  /** The image has more bytes or pixels, or costs more to decode, than the limits allow. */
  | "image_too_large"
  /** The engine cannot decode the bytes as an image. */
  | "invalid_image"
  | "too_many_videos"
  /** The video has more bytes, pixels or frames, or takes longer to decode, than the limits allow. */
  | "video_too_large"
  /** The engine cannot decode the bytes as a video. */
  | "invalid_video"
  /** The document has more bytes, or takes more memory or time to render, than the limits allow. */
  | "document_too_large"
  /** The engine cannot read the bytes as a document. */
  | "invalid_document"
  | "queue_full"
  | "aborted"
  | "not_ready"
  | "closed"
  /** A step of the engine has exceeded `stepTimeoutMs`. */
  | "engine_stalled"
  | "unsupported_model"
  | "invalid_checkpoint"
  | "invalid_configuration"
  /** A logits processor that the settings name, or a package announces, does not load or cannot be constructed. */
  | "invalid_logits_processor"
  | "logits_processor_failed"
  | "runtime_failed"
  /** The device has too little memory: for the model, or for a request that is computed alone. */
  | "out_of_memory"
  /** The GPU is unusable until the process ends: a fault of a kernel, of its memory, or of its bus. */
  | "device_lost"
  /** ONNX Runtime's native library is not installed. */
  | "runtime_missing"
  | "internal";

/** Settings that limit what is served, by their names in `EngineConfig` or in the options of image sources. */
export type ServingSetting =
  | "runner"
  | "maxImagesPerPrompt"
  | "maxNumWaiting"
  | "enableMmEmbeds"
  | "maxImageBytes"
  | "maxImagePixels"
  | "maxDecodeCost"
  | "maxRequestDecodeCost"
  | "decodeTimeoutMs"
  | "fetchTimeoutMs"
  | "maxVideosPerPrompt"
  | "maxVideoBytes"
  | "maxVideoFrames"
  | "videoDecodeTimeoutMs"
  | "videoFetchTimeoutMs"
  | "maxDocumentBytes"
  | "documentRenderTimeoutMs"
  | "allowedDomains"
  | "allowedPrivateHosts"
  | "allowHttp";

/** Settings that decide whether a model loads. */
export type LoadingSetting =
  | "runner"
  | "classifierFromToken"
  | "model"
  /** Of the hub: `HubConfig.token` and `HubConfig.endpoint`. */
  | "hubToken"
  | "hubEndpoint"
  | "azure"
  | "gcsEmulatorUrl"
  | "loraAdapter"
  | "loraModules"
  | "dtype"
  | "device"
  | "deviceId"
  | "dataParallelSize"
  | "cacheFolder"
  | "hubCacheFolder"
  | "chatTemplate"
  | "promptDtype"
  | "speculativeConfig"
  /** Or `visionDevice`, `projectorDtype`, `projectorDevice`: they have to go together. */
  | "visionDtype"
  | "modelDefinitions"
  | "multimodalPipeline"
  | "pipelineParams"
  | "kvLayout"
  /** Or `numBlocks`. */
  | "blockSize"
  | "kvCacheDtype"
  | "kvCacheMemoryBytes"
  | "gpuMemoryUtilization"
  /** Of `ImageLimits`. */
  | "largestExpectedImage"
  | "maxModelLen"
  | "maxNumSequences"
  | "maxNumBatchedTokens";

export interface EngineErrorOptions {
  readonly cause?: unknown;
  readonly parameter?: string;
  readonly setting?: ServingSetting | LoadingSetting;
  /** Default: false. */
  readonly isTransient?: boolean;
}

export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly code: EngineErrorCode;
  /** The invalid request field in the engine's spelling (`samplingParams.temperature`), if there is one. */
  readonly parameter: string | null;
  /** The setting to change so that the engine accepts this or loads, if there is one. */
  readonly setting: ServingSetting | LoadingSetting | null;
  /** Of an `image_unreachable`: whether the same reference may be fetched later, as its host or store does not work now. */
  readonly isTransient: boolean;

  constructor(code: EngineErrorCode, message: string, options: EngineErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.parameter = options.parameter ?? null;
    this.setting = options.setting ?? null;
    this.isTransient = options.isTransient ?? false;
  }
}

/** The same error with the invalid request field. */
export function aboutParameter(error: EngineError, parameter: string): EngineError {
  const { code, message, setting, isTransient } = error;
  return new EngineError(code, message, { cause: error, parameter, isTransient, ...(setting !== null && { setting }) });
}

/**
 * Runs something for a part of a request.
 *
 * @throws EngineError As `run` does, with the parameter.
 */
export async function namingParameter<Result>(parameter: string, run: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof EngineError ? aboutParameter(error, parameter) : error;
  }
}

/**
 * Checks a condition that only a bug in Fovea can break.
 *
 * @throws EngineError `internal` if the condition does not hold.
 */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new EngineError("internal", `Invariant broken: ${message}`);
}
