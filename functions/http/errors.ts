/** Maps errors to HTTP statuses and OpenAI error bodies. Statuses are chosen only here. */
import { EngineError } from "../../engine/index.ts";
import type { EngineErrorCode } from "../../engine/index.ts";
import { errorBody, shortenMessage } from "./error-body.ts";
import type { ErrorBody } from "./error-body.ts";
import { toWireParameter, toWireWords } from "./wire-parameter.ts";
import type { RequestPaths } from "./wire-parameter.ts";

export interface HttpErrorOptions {
  readonly parameter?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** A request rejected by the HTTP layer itself. */
export class HttpError extends Error {
  override readonly name = "HttpError";
  readonly status: number;
  readonly code: string;
  readonly parameter: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, code: string, message: string, options: HttpErrorOptions = {}) {
    const { parameter, headers = {}, cause } = options;
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
    this.code = code;
    this.parameter = parameter ?? null;
    this.headers = headers;
  }
}

/** Long enough for a slot to become free or a small model to load. */
const RETRY_AFTER_SECONDS = 2;

/** nginx's status for a client that closed the connection; it appears only in the log. */
export const CLIENT_CLOSED_REQUEST = 499;

const statusOfCode = {
  invalid_argument: 400,
  prompt_too_long: 400,
  too_many_images: 400,
  invalid_image_reference: 400,
  image_unreachable: 422,
  image_too_large: 400,
  invalid_image: 400,
  too_many_videos: 400,
  video_too_large: 400,
  invalid_video: 400,
  document_too_large: 400,
  invalid_document: 400,
  queue_full: 429,
  aborted: CLIENT_CLOSED_REQUEST,
  not_ready: 503,
  closed: 503,
  engine_stalled: 503,
  unsupported_model: 500,
  invalid_checkpoint: 500,
  invalid_configuration: 500,
  invalid_logits_processor: 500,
  logits_processor_failed: 500,
  runtime_failed: 500,
  out_of_memory: 503,
  device_lost: 503,
  runtime_missing: 500,
  internal: 500,
} as const satisfies Record<EngineErrorCode, number>;

/** Codes with another name in OpenAI's clients. */
const wireCodes: Partial<Record<EngineErrorCode, string>> = {
  prompt_too_long: "context_length_exceeded",
  not_ready: "model_loading",
  closed: "shutting_down",
};

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: ErrorBody;
}

const unknownPaths: RequestPaths = {
  prompt: "prompt",
  images: [],
  videos: [],
  documents: [],
  structuredOutput: "structured_outputs",
};

/** Internal errors show only the request id. Errors of the client or of a logits processor show their message. */
export function toErrorAnswer(error: unknown, requestId: string, paths: RequestPaths = unknownPaths): ErrorAnswer {
  const rename = (text: string): string => paths.rename?.(text) ?? text;
  if (error instanceof HttpError) {
    const { status, code, message, parameter, headers } = error;
    return answer(status, code, rename(message), parameter === null ? null : rename(parameter), headers);
  }
  if (error instanceof EngineError) {
    const status = statusOfCode[error.code];
    // The author of a processor wrote its message for its users.
    if (status < 500 || status === 503 || error.code === "logits_processor_failed") {
      const parameter = error.parameter === null ? null : toWireParameter(error.parameter, paths);
      // Shortened before it is searched for names, because it may quote a schema of the request.
      const told = shortenMessage(error.message);
      const message = `${isAboutFields(error) ? toWireWords(told, paths) : told}${settingHint(error)}`;
      const code = wireCodes[error.code] ?? error.code;
      return answer(
        status,
        code,
        rename(message),
        parameter === null ? null : rename(parameter),
        headersOf(error.code),
      );
    }
  }
  return answer(500, "internal_error", `Internal error; the log describes it under request id ${requestId}.`, null, {});
}

function headersOf(code: EngineErrorCode): Readonly<Record<string, string>> {
  if (code === "queue_full" || code === "not_ready" || code === "engine_stalled" || code === "device_lost")
    return { "Retry-After": String(RETRY_AFTER_SECONDS) };
  if (code === "closed") return { "Retry-After": String(RETRY_AFTER_SECONDS), Connection: "close" };
  return {};
}

/** The setting that the operator could change. */
const settingHints: Readonly<Record<NonNullable<EngineError["setting"]>, string>> = {
  maxImagesPerPrompt: "LIMIT_MM_PER_PROMPT sets the limit.",
  runner: "RUNNER sets it.",
  classifierFromToken: "CLASSIFIER_FROM_TOKEN sets them.",
  maxNumWaiting: "MAX_NUM_SEQS and MAX_NUM_WAITING set the limit.",
  enableMmEmbeds: "Set ENABLE_MM_EMBEDS=true to accept them.",
  maxImageBytes: "MAX_IMAGE_BYTES sets the limit.",
  maxImagePixels: "MAX_IMAGE_PIXELS sets the limit.",
  maxDecodeCost: "MAX_IMAGE_DECODE_COST sets the limit.",
  maxRequestDecodeCost: "MAX_REQUEST_DECODE_COST sets the limit.",
  decodeTimeoutMs: "IMAGE_DECODE_TIMEOUT_SECONDS sets the limit.",
  fetchTimeoutMs: "IMAGE_FETCH_TIMEOUT_SECONDS sets the limit.",
  maxVideosPerPrompt: "LIMIT_MM_PER_PROMPT sets the limit.",
  maxVideoBytes: "MAX_VIDEO_BYTES sets the limit.",
  maxVideoFrames: "MAX_VIDEO_FRAMES sets the limit.",
  videoDecodeTimeoutMs: "VIDEO_DECODE_TIMEOUT_SECONDS sets the limit.",
  videoFetchTimeoutMs: "VIDEO_FETCH_TIMEOUT_SECONDS sets the limit.",
  maxDocumentBytes: "MAX_DOCUMENT_BYTES sets the limit.",
  documentRenderTimeoutMs: "DOCUMENT_RENDER_TIMEOUT_SECONDS sets the limit.",
  allowedDomains: "ALLOWED_MEDIA_DOMAINS lists them.",
  allowedPrivateHosts: "ALLOWED_PRIVATE_HOSTS lists the private hosts that are allowed.",
  allowHttp: "ALLOW_HTTP_IMAGES=true allows http:.",
  maxModelLen: "MAX_MODEL_LEN sets the limit.",
  maxNumSequences: "MAX_NUM_SEQS sets the limit.",
  maxNumBatchedTokens: "MAX_NUM_BATCHED_TOKENS sets the limit.",
  chatTemplate: "CHAT_TEMPLATE sets the template.",
  model: "MODEL names the model.",
  hubToken: "HF_TOKEN sets it.",
  hubEndpoint: "HF_ENDPOINT sets it.",
  azure: "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_CONNECTION_STRING set it.",
  gcsEmulatorUrl: "STORAGE_EMULATOR_HOST sets it.",
  loraAdapter: "LORA_ADAPTER names the adapter.",
  loraModules: "LORA_MODULES names the adapters.",
  dtype: "DTYPE sets it.",
  device: "DEVICE sets it.",
  deviceId: "DEVICE_ID sets it.",
  dataParallelSize: "DATA_PARALLEL_SIZE sets it.",
  visionDtype: "VISION_DTYPE, VISION_DEVICE, PROJECTOR_DTYPE and PROJECTOR_DEVICE set it.",
  modelDefinitions: "MODEL_DEFINITIONS sets them.",
  multimodalPipeline: "MULTIMODAL_PIPELINE sets it.",
  pipelineParams: "PIPELINE_PARAMS sets it.",
  kvLayout: "KV_LAYOUT sets it.",
  blockSize: "BLOCK_SIZE and NUM_GPU_BLOCKS_OVERRIDE set it.",
  kvCacheDtype: "KV_CACHE_DTYPE sets it.",
  kvCacheMemoryBytes: "KV_CACHE_MEMORY_BYTES sets the limit.",
  gpuMemoryUtilization: "GPU_MEMORY_UTILIZATION sets it.",
  largestExpectedImage: "LIMIT_MM_PER_PROMPT sets it.",
  promptDtype: "PROMPT_DTYPE sets it.",
  speculativeConfig: "SPECULATIVE_CONFIG sets it.",
  cacheFolder: "CACHE_FOLDER sets the folder.",
  hubCacheFolder: "HF_HUB_CACHE sets the folder.",
};

function settingHint({ setting }: EngineError): string {
  return setting === null ? "" : ` ${settingHints[setting]}`;
}

/** Its message may use the engine's names of fields. */
function isAboutFields({ code, parameter }: EngineError): boolean {
  // It says which fields choose fewer pages.
  if (code === "too_many_images") return true;
  return (
    parameter !== null &&
    (/^(samplingParams|videoSampling|documentPages)\./.test(parameter) || requestFields.has(parameter))
  );
}

const requestFields: ReadonlySet<string> = new Set(["numChoices", "truncatePromptTokens", "templateArguments"]);

function answer(
  status: number,
  code: string,
  message: string,
  param: string | null,
  headers: Readonly<Record<string, string>>,
): ErrorAnswer {
  return { status, headers, body: errorBody(status, code, message, param) };
}
