/** The engine's public surface: the only file of `engine/` that code outside it imports. */
export { createEngine } from "./create-engine.ts";
export type { Engine, EngineDependencies, EngineState, GenerateOptions, LoadProgress, ModelInfo } from "./engine.ts";
export { inspectModel } from "./inspect-model.ts";
export type { ModelInspection } from "./inspection/inspect-model.ts";
export { createWorstCaseRequests } from "./inspection/worst-case-requests.ts";
export { EngineError } from "./errors.ts";
export type { EngineErrorCode } from "./errors.ts";
export type {
  CacheConfig,
  DeviceName,
  DtypeName,
  EngineConfig,
  ImageLimits,
  LogitsProcessorReference,
} from "./config.ts";
export type { ChatMessage, ChatRole, ContentPart, GenerationRequest, ImagePart, Prompt } from "./generation-request.ts";
export type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  FinishReason,
  RequestOutput,
  SampledLogprobs,
  TokenLogprob,
} from "./request-output.ts";
export { createSamplingParams } from "./sampling-params.ts";
export type { ExtraArgument, SamplingParams } from "./sampling-params.ts";
export type { StructuredOutput } from "./structured-output/structured-output.ts";
export type { EngineCoreStats } from "./core/messages.ts";
export type { ConnectedImageSource, FetchImageOptions, ImageSource } from "./images/image-source.ts";
export { createDataUrlImageSource } from "./images/data-url-image-source.ts";
export { createHttpsImageSource } from "./images/https-image-source.ts";
export type { HttpsImageSourceOptions } from "./images/https-image-source.ts";
export { createS3ImageSource } from "./images/s3-image-source.ts";
export type { S3ImageSourceOptions } from "./images/s3-image-source.ts";
export type { CacheReport, CacheTierReport } from "./multimodal/caches/multimodal-caches.ts";
export type { ByteStore, ByteStoreEntry } from "./multimodal/caches/byte-store.ts";
export { LogitsProcessor } from "./sampling/logits-processor.ts";
export type {
  AddedRequest,
  BatchUpdate,
  Logits,
  MoveDirectionality,
  MovedRequest,
} from "./sampling/logits-processor.ts";
export { RequestLogitsProcessorAdapter } from "./sampling/request-logits-processor-adapter.ts";
export type { RequestLogitsProcessor } from "./sampling/request-logits-processor-adapter.ts";
