/** What the facade and the engine thread say to each other. */
import type { MessagePort } from "node:worker_threads";

import type { EngineConfig } from "../contract/config.ts";
import type { EngineErrorCode } from "../contract/errors.ts";
import type { FinishReason, SampledLogprobs } from "../contract/request-output.ts";
import type { EngineRequest } from "../core/engine-request.ts";
import type { KvCapacity } from "../kv/kv-manager.ts";
import type { BuiltModel } from "../models/built-model.ts";
import type { ItemTensor } from "../multimodal/processed-item.ts";

/** What the engine thread is started with. */
export interface EngineThreadData {
  /** Brings the `WorkerOptions`, once. */
  readonly optionsPort: MessagePort;
  /** Of the thread's `StepProgress`. */
  readonly progress: SharedArrayBuffer;
}

/** What the engine thread is started for. */
export interface WorkerOptions {
  readonly config: EngineConfig;
  readonly model: BuiltModel;
  /** Most tokens of one sequence: the setting, or the checkpoint's own limit; never more than the latter. */
  readonly maxModelLen: number;
  readonly eosTokenIds: readonly number[];
  /** Most embeddings of one image; 0 where there are none. */
  readonly maxEmbeddingsPerImage: number;
}

export type ToEngineThread =
  | {
      readonly kind: "add";
      readonly request: EngineRequest;
      /** Further sequences of the same prompt, whose images are thus sent once. */
      readonly siblings?: readonly Pick<EngineRequest, "requestId" | "seed" | "samplingParams">[];
    }
  | { readonly kind: "abort"; readonly requestIds: readonly string[] }
  | { readonly kind: "close" };

/** One sequence's share of one step. */
export interface EngineCoreOutput {
  readonly requestId: string;
  /** The tokens this step sampled; empty for an abort or error. */
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly SampledLogprobs[] | null;
  /** With the first token of a sequence that asks for them: of every token of the prompt but the first. */
  readonly promptLogprobs?: readonly SampledLogprobs[] | null;
  readonly finishReason: FinishReason | null;
  readonly stopReason: number | null;
  /** Set when `finishReason` is "error". */
  readonly error: { readonly code: EngineErrorCode; readonly message: string } | null;
  readonly numCachedTokens: number;
}

/** Gauges and counters since start, sent with the outputs. */
export interface EngineCoreStats {
  readonly numRequestsRunning: number;
  readonly numRequestsWaiting: number;
  /** Share of the KV cache in use, 0 to 1. */
  readonly kvCacheUsage: number;
  readonly kvCapacity: KvCapacity;
  /** Computed or reused. */
  readonly numPromptTokens: number;
  readonly numGenerationTokens: number;
  /** Prompt tokens for which reusable keys and values were looked for. */
  readonly numPrefixCacheQueries: number;
  /** Of those, how many were reused. */
  readonly numPrefixCacheHits: number;
  /** How often a sequence gave up its keys and values for others. */
  readonly numPreemptions: number;
  readonly numSteps: number;
}

/** What the vision encoder made of one image. */
export interface EncoderOutput {
  readonly mmHash: string;
  /** Row-major [numEmbeddings, hiddenSize], in memory that threads share; not written to any more. */
  readonly embeddings: ItemTensor<"float32">;
}

export type FromEngineThread =
  | { readonly kind: "ready" }
  | { readonly kind: "outputs"; readonly outputs: readonly EngineCoreOutput[]; readonly stats: EngineCoreStats }
  | { readonly kind: "encoded"; readonly images: readonly EncoderOutput[] }
  /** The thread cannot go on; every request is lost. */
  | { readonly kind: "failed"; readonly code: EngineErrorCode; readonly message: string };
