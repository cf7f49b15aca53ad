/** The public facade: one model, served to any number of concurrent requests. */
import type { S3Client } from "@aws-sdk/client-s3";

import type { ImageSource } from "../images/image-source.ts";
import type { ByteStore } from "../multimodal/caches/byte-store.ts";
import type { CacheReport } from "../multimodal/caches/multimodal-caches.ts";
import type { CudaDevice } from "../runtime/cuda-driver.ts";
import type { GivenLogitsProcessor } from "../sampling/custom/given-classes.ts";
import type { ProcessorRefusal } from "../sampling/custom/processor-loading.ts";
import type { EngineCoreStats } from "../thread/messages.ts";
import type { TaskName } from "./config.ts";
import type { EngineError } from "./errors.ts";
import type { GenerationRequest, PromptFigures, PromptRequest } from "./generation-request.ts";
import type { Modality, RequestOutput } from "./request-output.ts";
import type { SamplingParams } from "./sampling-params.ts";
import type { OnStartPhase } from "./start-phase.ts";

/** `stalled`: requests are rejected until the current step ends, if it ever does; see `Engine.stall`. */
export type EngineState = "loading" | "ready" | "stalled" | "failed" | "closed";

/** A step of the engine that has taken longer than `stepTimeoutMs` and is still running. */
export interface EngineStall {
  /** Minimum time that the step has taken so far. */
  readonly seconds: number;
  /** The code that runs in the step: scheduling, the model, sampling with the engine's own processors, or a custom processor. */
  readonly activity: "scheduling" | "model" | "sampling" | "logits processor";
  /** The custom logits processor whose code runs: its name in the settings, and the `module:Export` that it was loaded from. */
  readonly logitsProcessor: { readonly name: string; readonly className: string } | null;
  /** Requests in progress when the stall was detected. */
  readonly numRequests: number;
  /**
   * Whether it has taken twice `stepTimeoutMs`: the requests in progress have been ended, and only a restart is likely
   * to help.
   */
  readonly isLasting: boolean;
}

/** Known once the engine is ready. */
export interface ModelInfo {
  readonly architecture: string;
  /** Maximum length of one sequence in tokens, prompt and output. */
  readonly maxModelLen: number;
  /**
   * Sequences computed together: the configured number, or fewer if the host's memory has no room for the KV of all.
   */
  readonly maxNumSequences: number;
  readonly vocabSize: number;
  /** The only one that requests may ask for. */
  readonly task: TaskName;
  /** Numbers of an embedding, of a prompt or of a token; null for other tasks. */
  readonly embeddingSize: number | null;
  /** Whether the model and the limits do. */
  readonly acceptsImages: boolean;
  readonly acceptsVideos: boolean;
  /** Whether the model accepts conversations. */
  readonly hasChatTemplate: boolean;
  /** The Jinja text of the chat template for conversations with tools; null without one. */
  readonly chatTemplate: string | null;
  readonly eosTokenIds: readonly number[];
  /** Texts of the special tokens that exist, by name: `bos_token`, `eos_token`, `image_token`, ... */
  readonly specialTokens: Readonly<Record<string, string>>;
  /** Defaults from the checkpoint's generation_config.json, for fields that a request leaves open. */
  readonly defaultSamplingParams: Partial<SamplingParams>;
  /** Names of the custom logits processors in the order they apply. */
  readonly logitsProcessors: readonly string[];
  /** Name of the pipeline that gives a text model its vision part; left out if there is none. */
  readonly pipeline?: string;
  /** Names of the LoRA adapters that requests may choose; left out if there are none. */
  readonly adapters?: readonly string[];
  /** The one of them that computes requests with pictures or videos which choose none; left out if none does. */
  readonly imageAdapter?: string;
}

export interface GenerateOptions {
  /** Aborting it frees the sequence's slot and ends the iteration with EngineError `aborted`. */
  readonly signal?: AbortSignal;
  /** Called once, when the prompt is processed and its sequences begin to wait for the engine; it must not throw. */
  readonly onQueued?: (figures: PromptFigures, numChoices: number) => void;
}

export interface RenderOptions extends Pick<GenerateOptions, "signal"> {
  /**
   * Also accept a prompt that is longer than the model length, to count its tokens. The limit is then
   * `MAX_COUNTED_TOKENS`, or the model length if that is larger. Default false.
   */
  readonly exceedsModelLen?: boolean;
}

/** A prompt as the model receives it. */
export interface RenderedPrompt {
  /** With image placeholders expanded to one id per embedding. */
  readonly tokenIds: readonly number[];
  /** In the order of their positions. */
  readonly images: readonly RenderedImage[];
}

/** An image, or an item of a video: a frame, or as many as the model encodes together. */
export interface RenderedImage {
  /** What the request sent, also for a model that sees the frames of videos as images. */
  readonly modality: Modality;
  /** Hash of the image, the model, the processor options and the salt: the key of the caches. */
  readonly mmHash: string;
  /** Index of its first token in the prompt. */
  readonly offset: number;
  /** Number of its tokens, those without an embedding included. */
  readonly length: number;
}

export interface Engine {
  readonly state: EngineState;
  /** The error that ended the engine, while loading or later; null until then. */
  readonly failure: EngineError | null;
  /** Null while steps end in time. */
  readonly stall: EngineStall | null;
  /**
   * Resolves when the engine accepts requests.
   *
   * @throws EngineError (as a rejection) that ended loading, such as `invalid_checkpoint` or `unsupported_model`.
   */
  readonly ready: Promise<void>;
  /** Null until ready. */
  readonly modelInfo: ModelInfo | null;
  /** Gauges and counters of the engine thread, as of its last step. */
  readonly stats: EngineCoreStats;
  /** Live counters of the image caches; null until ready. */
  readonly caches: CacheReport | null;
  /**
   * The rejection of the first logits processor that rejects these parameters; null if none does or the engine is not
   * ready. `generate` throws it by itself.
   */
  refusalOf(params: SamplingParams): ProcessorRefusal | null;
  /**
   * Yields deltas; the last one of a choice has a `finishReason`. Ending the iteration early (`return`) aborts the
   * sequence.
   *
   * @throws EngineError before the first output for a request that the engine rejects: `invalid_argument`,
   *   `prompt_too_long`, the codes of images, `queue_full`, `not_ready`, `closed` or `engine_stalled`. Later `aborted`,
   *   `logits_processor_failed`, `runtime_failed`, `out_of_memory`, or `engine_stalled` if a stall lasts.
   */
  generate(request: GenerationRequest, options?: GenerateOptions): AsyncIterable<RequestOutput>;
  /**
   * Turns a prompt into tokens exactly as `generate` does, and computes nothing on the model. Images are fetched and
   * processed, and stay in the caches.
   *
   * @throws EngineError (as a rejection) like `generate` before its first output.
   */
  render(request: PromptRequest, options?: RenderOptions): Promise<RenderedPrompt>;
  /**
   * The text of the tokens, special tokens included. Invalid UTF-8 becomes U+FFFD.
   *
   * @throws EngineError (as a rejection) `not_ready`, or `invalid_argument` for an id outside the vocabulary.
   */
  detokenize(tokenIds: readonly number[]): Promise<string>;
  /** The tokens in the vocabulary's own spelling ("" for an id without a token); null until ready. */
  tokensOf(tokenIds: readonly number[]): readonly string[] | null;
  /**
   * Closes the connection to the shared store, for a snapshot of the process's memory. Requests go on without the store.
   */
  disconnect(): Promise<void>;
  /** Connects again, and changes the random seeds, so that copies of this process draw different tokens. */
  reconnect(): Promise<void>;
  /**
   * Aborts running requests, ends the threads and frees all memory. Idempotent.
   *
   * @throws EngineError (as a rejection) `engine_stalled` if the engine thread is in a native call that does not return.
   */
  close(): Promise<void>;
}

/** Pipelines that settings can name. */
export interface PipelineList {
  readonly pipelines: readonly {
    readonly name: string;
    /** Folder or package of its module, or the name of one that ships with Fovea. */
    readonly module: string;
  }[];
  /** A sentence for each module that was left out. */
  readonly problems: readonly string[];
}

/** Progress of one slow part of loading, such as a download or a quantisation. */
export interface LoadProgress {
  readonly task: string;
  readonly completed: number;
  readonly total: number;
  readonly unit: "bytes" | "tensors";
}

export interface EngineDependencies {
  /** Sources of images. A reference whose scheme no source serves is rejected. The engine does not close them. */
  readonly imageSources: readonly ImageSource[];
  /** Called once, only if the model is an `s3://` reference. The engine destroys the client after loading. */
  readonly createS3Client?: () => S3Client;
  /** Called once while loading; the engine closes the store. Without it, replicas share nothing. */
  readonly createByteStore?: () => Promise<ByteStore>;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Receives the time of each part of the start. */
  readonly onPhase?: OnStartPhase;
  /** Receives the GPU on which the model will run, before it is loaded. Only on CUDA. */
  readonly onDevice?: (device: CudaDevice) => void;
  /** Called when a stall starts, again when it becomes lasting, and with null when its step has ended. */
  readonly onStall?: (stall: EngineStall | null) => void;
  /** Called at most once, when the engine thread has ended by itself after it was ready. */
  readonly onFailed?: (error: EngineError) => void;
  /**
   * Logits processors given as classes, applied after those that settings name. The engine thread imports each class
   * again from the module that its `static moduleUrl = import.meta.url` names. The module must export the class under
   * its name, and must not be the one that creates the engine.
   */
  readonly logitsProcessors?: readonly GivenLogitsProcessor[];
}
