/** The engine's public surface. Code outside `engine/` imports only this file. */
export { randomHex, randomUuid } from "./random-ids.ts";
export type { CudaDevice } from "./runtime/cuda-driver.ts";
export { createEngine } from "./create-engine.ts";
export type { EngineOptions } from "./default-config.ts";
export type {
  Engine,
  EngineDependencies,
  EngineStall,
  EngineState,
  GenerateOptions,
  LoadProgress,
  ModelInfo,
  PipelineList,
  RenderedImage,
  RenderedPrompt,
  RenderOptions,
} from "./contract/engine.ts";
export { listPipelines } from "./pipelines/list-pipelines.ts";
export { inspectGpu } from "./inspection/inspect-gpu.ts";
export type { GpuInspection } from "./inspection/inspect-gpu.ts";
export { inspectModel } from "./inspection/inspect-model.ts";
export type { ModelInspection } from "./inspection/inspect-checkpoint.ts";
export { createWorstCaseRequests } from "./inspection/worst-case-requests.ts";
export { RunningTimer } from "./running-timer.ts";
export { releaseUnusedMemory } from "./runtime/release-unused-memory.ts";
export { EngineError } from "./contract/errors.ts";
export type { EngineErrorCode } from "./contract/errors.ts";
export { documentContents } from "./contract/config.ts";
export type {
  CacheConfig,
  DocumentContent,
  DeviceName,
  DtypeName,
  EngineConfig,
  HubConfig,
  ImageLimits,
  KvLayoutName,
  LogitsProcessorReference,
  TaskName,
} from "./contract/config.ts";
export { totalSequences } from "./contract/data-parallel.ts";
export { defaultVideoLimits, dotsPerInchRange } from "./contract/default-limits.ts";
export { extraArgumentLimits } from "./contract/extra-arguments.ts";
export type { ExtraArgument, ExtraArguments } from "./contract/extra-arguments.ts";
export type {
  ChatMessage,
  ChatPromptInput,
  ChatRole,
  ContentPart,
  DocumentPages,
  DocumentPart,
  GenerationRequest,
  ImagePart,
  Prompt,
  PromptFigures,
  PromptRequest,
  VideoPart,
  VideoSampling,
} from "./contract/generation-request.ts";
export type { OnStartPhase, StartPhase } from "./contract/start-phase.ts";
export { epochMs } from "./contract/request-stage.ts";
export type { OnRequestStage, RequestStage, RequestStageName } from "./contract/request-stage.ts";
export { LEAST_LOGPROB } from "./contract/request-output.ts";
export type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  FinishReason,
  ReasoningStart,
  RequestOutput,
  SampledLogprobs,
  TokenLogprob,
} from "./contract/request-output.ts";
export { createSamplingParams, samplingLimits } from "./contract/sampling-params.ts";
export type { ReasoningMarkers, ReasoningParams, SamplingParams } from "./contract/sampling-params.ts";
export type { RepetitionDetection } from "./contract/repetition-detection.ts";
export { JsonFloat, JsonInteger } from "./contract/tools.ts";
export type { JsonObject, ToolCall, ToolDefinition } from "./contract/tools.ts";
export { checkStructuredOutput } from "./structured-output/check-structured-output.ts";
export { structuredOutputLimits } from "./structured-output/structured-output.ts";
export type { StructuralFormat, StructuredOutput } from "./structured-output/structured-output.ts";
export type { EngineCoreStats } from "./thread/messages.ts";
export { checkImageBytes, collectBounded } from "./images/bounded-bytes.ts";
export { fetchAlways } from "./images/image-source.ts";
export type {
  ConnectedImageSource,
  FetchedImage,
  FetchIfChangedOptions,
  FetchImageOptions,
  ImageSource,
} from "./images/image-source.ts";
export { createDataUrlImageSource } from "./images/data-url-image-source.ts";
export { createHttpsImageSource } from "./images/https-image-source.ts";
export type { HttpsImageSourceOptions } from "./images/https-image-source.ts";
export { createS3ImageSource } from "./images/s3-image-source.ts";
export type { S3ImageSourceOptions } from "./images/s3-image-source.ts";
export { isPassingS3Failure } from "./images/s3-failures.ts";
export type { CacheReport, CacheTierReport } from "./multimodal/caches/multimodal-caches.ts";
export type { ByteStore, ByteStoreEntry } from "./multimodal/caches/byte-store.ts";
export { LogitsProcessor } from "./sampling/contract/logits-processor.ts";
export type {
  AddedRequest,
  BatchUpdate,
  Logits,
  MoveDirectionality,
  MovedRequest,
} from "./sampling/contract/logits-processor.ts";
export { importExport } from "./sampling/custom/import-export.ts";
export { RequestLogitsProcessorAdapter } from "./sampling/contract/request-logits-processor-adapter.ts";
export type { RequestLogitsProcessor } from "./sampling/contract/request-logits-processor-adapter.ts";
export { untilAborted } from "./concurrent-work.ts";
