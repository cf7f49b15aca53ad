/** Settings of one engine; read from the environment elsewhere, never here. */

import type { ImageSize } from "../multimodal/processing-info.ts";

export type DeviceName = "cpu" | "cuda" | "webgpu";

/** `auto` is the fastest that is as true as the checkpoint: float32 on `cpu`, float16 on GPU devices. */
export type DtypeName = "auto" | "float32" | "float16" | "int8" | "int4";

export interface LogitsProcessorReference {
  /** `module:Export`. */
  readonly className: string;
  /** What messages and lists call it; `className` where absent. */
  readonly name?: string;
  readonly options: Readonly<Record<string, unknown>>;
}

export interface ImageLimits {
  readonly maxImagesPerPrompt: number;
  /**
   * The largest picture to plan memory for, where that is smaller than the largest that matters to the model. Larger
   * ones are taken all the same.
   */
  readonly largestExpectedImage?: Partial<ImageSize>;
  readonly maxImageBytes: number;
  readonly maxImagePixels: number;
  readonly fetchTimeoutMs: number;
}

export interface CacheConfig {
  /** Of this process, for all caches of images together; 0 keeps nothing in memory. */
  readonly maxMemoryBytes: number;
  /** In the store that replicas share. */
  readonly timeToLiveSeconds: number;
  /** A larger value is not written to the shared store. */
  readonly maxValueBytes: number;
  /** Most that a request waits for the shared store. */
  readonly commandTimeoutMs: number;
  /** In front of every key in the shared store. */
  readonly keyPrefix: string;
}

/**
 * The longest steps that are no failure: the first on a GPU, which compiles and tunes kernels for tens of seconds, and a
 * prompt's on a slow CPU, where 512 tokens of 7B parameters take 15 s in int4 and over a minute in float32.
 */
export const defaultStepTimeoutMs = 120_000;

export interface EngineConfig {
  /** Folder of a Hugging Face checkpoint, or `s3://bucket/prefix`. */
  readonly model: string;
  readonly dtype: DtypeName;
  readonly device: DeviceName;
  readonly deviceId: number;
  /** Most tokens of one sequence, prompt and output; null takes the checkpoint's own limit. */
  readonly maxModelLen: number | null;
  /** Most sequences running together: the number of KV slots. */
  readonly maxNumSequences: number;
  /** Most tokens computed in one step. */
  readonly maxNumBatchedTokens: number;
  /** Most requests waiting for a slot; one more is refused with `queue_full`. */
  readonly maxNumWaiting: number;
  /**
   * How long one step may take before the engine counts as stalled; after twice as long, requests are ended. Default:
   * `defaultStepTimeoutMs`.
   */
  readonly stepTimeoutMs?: number;
  /** Whether prompts reuse keys and values that equal prefixes have left in KV slots. Default true. */
  readonly enablePrefixCaching?: boolean;
  readonly logitsProcessors: readonly LogitsProcessorReference[];
  /**
   * Folders below which dotted module paths of logits processors are looked up, and whose node_modules hold packages of
   * them, as the working directory's may.
   */
  readonly logitsProcessorPath: readonly string[];
  /** Threads of one ONNX Runtime call; null is the number of physical cores. */
  readonly numThreads: number | null;
  /** Holds downloaded checkpoints, quantised weights and built graphs. */
  readonly cacheFolder: string;
  readonly imageLimits: ImageLimits;
  /** What is remembered of images. Default: `defaultCacheConfig`. */
  readonly caches?: CacheConfig;
  /** Whether requests may bring image embeddings of their own; they are believed to be the encoder's. Default false. */
  readonly enableMmEmbeds?: boolean;
  /** Changes to the checkpoint's image processor options, as preprocessor_config.json names them. */
  readonly mmProcessorOptions?: Readonly<Record<string, unknown>>;
}
