/** Messages between the facade and the engine thread. */
import type { MessagePort } from "node:worker_threads";

import type { EngineConfig } from "../contract/config.ts";
import type { EngineError, EngineErrorCode } from "../contract/errors.ts";
import type { FinishReason, SampledLogprobs, TokenStopReason } from "../contract/request-output.ts";
import type { StartPhase } from "../contract/start-phase.ts";
import type { EngineRequest, ImageFeature } from "../core/engine-request.ts";
import type { ImageOutline } from "../core/image-outline.ts";
import type { KvCapacity } from "../kv/kv-manager.ts";
import type { BuiltModel } from "../models/built-model.ts";
import type { ItemTensor } from "../multimodal/processed-item.ts";
import type { CudaDevice } from "../runtime/cuda-driver.ts";
import type { SharedWeights } from "../runtime/shared-weights.ts";
import type { DraftStats } from "../scheduler/drafts.ts";

/** Worker data of the engine thread. */
export interface EngineThreadData {
  /** Receives the `WorkerOptions` once. */
  readonly optionsPort: MessagePort;
  /** The memory of the thread's `StepProgress`. */
  readonly progress: SharedArrayBuffer;
  /** The number of the GPU to look for before the model arrives; null if it computes on none of CUDA's. */
  readonly cudaDeviceId: number | null;
}

/** One of several copies of the model. */
export interface ModelCopy {
  /** Of this copy, from 0 on. */
  readonly index: number;
  /** The memory of the copies' `CopyActivity`. */
  readonly activity: SharedArrayBuffer;
  /** Null for a part that each copy loads for itself. */
  readonly weights: { readonly decoder: SharedWeights | null; readonly visionEncoder: SharedWeights | null };
}

/** The model and settings that the engine thread loads. */
export interface WorkerOptions {
  /** Null or left out for the only one. */
  readonly copy?: ModelCopy | null;
  readonly config: EngineConfig;
  readonly model: BuiltModel;
  /** Maximum number of tokens per sequence: the setting or the checkpoint's own limit, never more than the latter. */
  readonly maxModelLen: number;
  readonly eosTokenIds: readonly number[];
  /** Maximum number of embeddings per image; 0 if the model has no images. */
  readonly maxEmbeddingsPerImage: number;
  /** Whether caches outside of the thread take the embeddings of images. Default true. */
  readonly wantsEmbeddings?: boolean;
  /** Whether images are encoded beside the steps. Default: on the CPU. */
  readonly encodesInBackground?: boolean;
  /** Encoded before the first request; null without a warm-up, and for a model without images. */
  readonly warmUpImage: ImageFeature | null;
  /**
   * The largest image that the model and the settings expect, by which a GPU's memory is planned. Null or left out
   * without images there.
   */
  readonly largestImage?: ImageOutline | null;
}

export type ToEngineThread =
  | {
      readonly kind: "add";
      readonly request: EngineRequest;
      /** More sequences of the same prompt, so that its images are sent once. */
      readonly siblings?: readonly Pick<EngineRequest, "requestId" | "seed" | "samplingParams">[];
    }
  | { readonly kind: "abort"; readonly requestIds: readonly string[] }
  | { readonly kind: "close" };

/** One sequence's part of a step's output. */
export interface EngineCoreOutput {
  readonly requestId: string;
  /** The tokens sampled in this step; empty for an abort or error. */
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly SampledLogprobs[] | null;
  /** Sent with the first token if requested: for every token of the prompt but the first. */
  readonly promptLogprobs?: readonly SampledLogprobs[] | null;
  /** Of an engine that pools, sent with the end: the decoder's output for the prompt's last token. */
  readonly pooled?: Float32Array;
  readonly finishReason: FinishReason | null;
  readonly stopReason: TokenStopReason | null;
  /** Set when `finishReason` is "error". */
  readonly error: { readonly code: EngineErrorCode; readonly message: string } | null;
  readonly numCachedTokens: number;
  /** Sent with the first token: when the sequence was first scheduled, in milliseconds since the epoch. */
  readonly scheduledMs?: number;
}

/** Gauges and counters since start, sent with the outputs. */
/** Ids of adapters, each once; see `EngineRequest`. */
export interface AdapterStats {
  /** Of sequences in the running batch. */
  readonly running: readonly number[];
  /** Of the sequences that join it next. */
  readonly waiting: readonly number[];
}

export interface EngineCoreStats {
  readonly numRequestsRunning: number;
  readonly numRequestsWaiting: number;
  /** Fraction of the KV cache in use, 0 to 1. */
  readonly kvCacheUsage: number;
  readonly kvCapacity: KvCapacity;
  /** Computed or reused. */
  readonly numPromptTokens: number;
  readonly numGenerationTokens: number;
  /** Prompt tokens looked up for reuse. */
  readonly numPrefixCacheQueries: number;
  /** Prompt tokens whose keys and values were reused. */
  readonly numPrefixCacheHits: number;
  /** How often a sequence was preempted. */
  readonly numPreemptions: number;
  readonly numSteps: number;
  readonly drafts: DraftStats;
  readonly adapters: AdapterStats;
}

/** The vision encoder's output for one image. */
export interface EncoderOutput {
  readonly mmHash: string;
  /** Row-major [numEmbeddings, hiddenSize], in shared memory; no longer written to. */
  readonly embeddings: ItemTensor<"float32">;
}

/** The parts of a warning, because an error that crosses threads loses its name. */
export interface ThreadWarning {
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  readonly code?: string;
}

export type FromEngineThread =
  /** A phase of the start has ended. */
  | { readonly kind: "phase"; readonly phase: StartPhase; readonly seconds: number }
  | { readonly kind: "device"; readonly device: CudaDevice }
  | { readonly kind: "ready"; readonly stats: EngineCoreStats }
  | { readonly kind: "outputs"; readonly outputs: readonly EngineCoreOutput[]; readonly stats: EngineCoreStats }
  | { readonly kind: "encoded"; readonly images: readonly EncoderOutput[] }
  /** A warning of the thread's process object, which no one else can listen to. */
  | { readonly kind: "warning"; readonly warning: ThreadWarning }
  /** The thread cannot continue, and every request is lost. */
  | {
      readonly kind: "failed";
      readonly code: EngineErrorCode;
      readonly message: string;
      readonly setting: EngineError["setting"];
    };
