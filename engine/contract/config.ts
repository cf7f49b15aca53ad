/** Settings of one engine. The service reads them from the environment; the engine does not. */

import type { LargestSize } from "../multimodal/processing-info.ts";
import type { SpeculativeConfig } from "./speculative-config.ts";

export const deviceNames = ["cpu", "cuda", "webgpu"] as const;
export type DeviceName = (typeof deviceNames)[number];

/** `auto` is the fastest type that keeps the checkpoint's accuracy: float32 on `cpu`, 16 bits on GPU devices. */
export const dtypeNames = ["auto", "float32", "bfloat16", "float16", "int8", "int4"] as const;
export type DtypeName = (typeof dtypeNames)[number];

export const kvCacheDtypeNames = ["auto", "model", "int8", "fp8"] as const;
export type KvCacheDtypeName = (typeof kvCacheDtypeNames)[number];

export const promptDtypeNames = ["auto", "model", "int8"] as const;
export type PromptDtypeName = (typeof promptDtypeNames)[number];

/**
 * How the KV cache is divided. `slots`: each sequence owns memory for the longest sequence. `paged`: sequences hold
 * blocks as they grow, share those of equal prefixes, and run in one packed batch. `auto` is `paged` on `cuda`.
 */
export const kvLayoutNames = ["auto", "slots", "paged"] as const;
export type KvLayoutName = (typeof kvLayoutNames)[number];

/** What the engine computes for a prompt, as vLLM names it. `generate`: text. `pooling`: an embedding. */
export const runnerNames = ["generate", "pooling"] as const;
export type RunnerName = (typeof runnerNames)[number];

/** What a model computes of a prompt: text, its embedding, those of its tokens, or the score of a query and a document. */
export const taskNames = ["generate", "embed", "token_embed", "score"] as const;
export type TaskName = (typeof taskNames)[number];

/**
 * How messages are given to the chat template: their content as one text (`string`), or as a list of parts (`openai`).
 * `auto` detects it in the template.
 */
export const chatTemplateContentFormats = ["auto", "string", "openai"] as const;
export type ChatTemplateContentFormat = (typeof chatTemplateContentFormats)[number];

export interface LogitsProcessorReference {
  /** `module:Export`. */
  readonly className: string;
  /** The name in messages and lists; default: `className`. */
  readonly name?: string;
  readonly options: Readonly<Record<string, unknown>>;
}

export interface ImageLimits {
  readonly maxImagesPerPrompt: number;
  /**
   * The largest image to plan memory for, if smaller than the model's largest. Larger images are still accepted.
   */
  readonly largestExpectedImage?: LargestSize;
  readonly maxImageBytes: number;
  readonly maxImagePixels: number;
  /**
   * Maximum cost of decoding one image, or all new images of a request, in pixels of a plain 8-bit RGB picture. A pixel
   * of an AVIF, a 16-bit picture or a progressive JPEG costs several. Default: `defaultDecodeLimits`.
   */
  readonly maxDecodeCost?: number;
  readonly maxRequestDecodeCost?: number;
  /** Rounded up to whole seconds. Default: `defaultDecodeLimits`. */
  readonly decodeTimeoutMs?: number;
  readonly fetchTimeoutMs: number;
  /** Encoded bytes that all requests together hold of images being fetched or processed. Default: a quarter of the memory, at most 1 GiB. */
  readonly maxFetchedBytes?: number;
  /**
   * Bytes of processed images that all requests hold together until their prompts are computed. Default: a quarter of the
   * memory of the machine or its container.
   */
  readonly maxProcessedBytes?: number;
}

export interface VideoLimits {
  readonly maxVideosPerPrompt: number;
  readonly maxVideoBytes: number;
  /** Frames of a video that a prompt shows, at most, whatever a request or a checkpoint asks for. */
  readonly maxVideoFrames: number;
  /** Frames of a video for checkpoints without a video processor, if the request does not say. */
  readonly numFrames: number;
  /** For fetching a video, redirects and retries included. */
  readonly fetchTimeoutMs: number;
  /** For reading a video, and for decoding its frames. */
  readonly videoDecodeTimeoutMs: number;
}

/** A page is its picture, the text that the file has for it, or its picture and then its text. */
export const documentContents = ["images", "text", "both"] as const;
export type DocumentContent = (typeof documentContents)[number];

/** The number of pages that are images is limited by `ImageLimits.maxImagesPerPrompt`. */
export interface DocumentLimits {
  readonly maxDocumentBytes: number;
  /** Of rendered pages, if the request does not say. */
  readonly dotsPerInch: number;
  /** What the prompt has of a page, if the request does not say. */
  readonly content: DocumentContent;
  /** For reading a document, and for rendering as many pages as are in memory together. */
  readonly renderTimeoutMs: number;
}

export interface CacheConfig {
  /** For all image caches of this process together; 0 keeps nothing in memory. */
  readonly maxMemoryBytes: number;
  /** In the store that replicas share. */
  readonly timeToLiveSeconds: number;
  /** Larger values are not written to the shared store. */
  readonly maxValueBytes: number;
  /** The longest time that a request waits for the shared store. */
  readonly commandTimeoutMs: number;
  /** Prefix of every key in the shared store. */
  readonly keyPrefix: string;
}

/** The Hugging Face Hub, and the cache that Python programs share. */
export interface HubConfig {
  readonly endpoint: string;
  /** The folder that has a `models--org--name` for each repository. */
  readonly cacheFolder: string;
  /** Null takes the content of `tokenFile`. */
  readonly token: string | null;
  /** It need not exist. */
  readonly tokenFile: string;
  /** Whether only the cache is used. */
  readonly isOffline: boolean;
}

/** Azure Blob Storage. Null is not set. The connection string wins, then the account key, then the SAS. */
export interface AzureConfig {
  readonly accountName: string | null;
  readonly connectionString: string | null;
  /** Base64. */
  readonly accountKey: string | null;
  /** Query of a shared access signature, with or without "?". */
  readonly sasToken: string | null;
  /** Used without any of the above. */
  readonly identity: AzureIdentityConfig;
}

/** An identity of Microsoft Entra: of a workload, of an application with a secret, or of the machine. */
export interface AzureIdentityConfig {
  readonly tenantId: string | null;
  readonly clientId: string | null;
  readonly clientSecret: string | null;
  /** File with the token of a workload, which the platform renews. */
  readonly federatedTokenFile: string | null;
  readonly authorityHost: string;
  /** Where a platform such as Container Apps gives tokens, and the secret that it asks for. */
  readonly platformEndpoint: string | null;
  readonly platformSecret: string | null;
  /** Where a virtual machine gives tokens. */
  readonly metadataUrl: string;
}

export interface LoraModule {
  /** Requests choose it by this name. */
  readonly name: string;
  /** A reference like `EngineConfig.model`. */
  readonly path: string;
  /** Whether it computes the requests with pictures or videos that choose no adapter. At most one does. Default: false. */
  readonly isDefaultForImages?: boolean;
}

export interface EngineConfig {
  /**
   * Folder of a Hugging Face checkpoint, `org/name` or `hf://org/name@revision` of the hub, or a prefix in an object
   * store: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
   */
  readonly model: string;
  /** A LoRA adapter of the model, as a reference like `model`; its updates become part of the weights. Default: none. */
  readonly loraAdapter?: string | null;
  /** LoRA adapters beside the weights, of which each request may choose one. Default: none. */
  readonly loraModules?: readonly LoraModule[];
  /** Default: `generate`. */
  readonly runner?: RunnerName;
  /**
   * For the runner `pooling`: the tokens of a reranker's classes, as in the vocabulary. `["no", "yes"]`: a score is the
   * logit of the second less that of the first; `["Yes"]`: the logit itself. Null or left out: as the checkpoint says.
   */
  readonly classifierFromToken?: readonly string[] | null;
  readonly dtype: DtypeName;
  readonly device: DeviceName;
  readonly deviceId: number;
  /**
   * Copies of the model on the CPU, among which requests are divided. Each has an engine thread, and its part of the
   * cores and of the memory. Limits of sequences, of tokens in a step and of the KV cache are those of each copy.
   * Null or left out: two on two cores, if both have room for their sequences; they divide the limits, too. Otherwise one.
   */
  readonly dataParallelSize?: number | null;
  /** The maximum length of one sequence in tokens, prompt and output; null takes the checkpoint's own limit. */
  readonly maxModelLen: number | null;
  /** The largest number of sequences that run together in one copy. */
  readonly maxNumSequences: number;
  /** Default `auto`. */
  readonly kvLayout?: KvLayoutName;
  /**
   * Weights for prompts and large batches of newest tokens. `model`: the same as for all other tokens. `int8`: 8-bit
   * weights in addition to 4-bit weights or stored integers, on the CPU. Default `auto`.
   */
  readonly promptDtype?: PromptDtypeName;
  /**
   * Type of keys and values: `model` is that of the activations; `int8` takes a quarter of float32's memory, on the CPU
   * with slots; `fp8` (E4M3) half of 16 bits, in a paged cache on `cuda`. Default `auto`.
   */
  readonly kvCacheDtype?: KvCacheDtypeName;
  /** Tokens of one block of a paged KV cache. Default: the smallest that the device's kernels compute fast. */
  readonly blockSize?: number | null;
  /** Number of blocks of a paged KV cache, instead of the number that fits into memory. */
  readonly numBlocks?: number | null;
  /**
   * Limit of the memory for keys and values in bytes. Null or left out: what the weights and a tenth of the memory leave;
   * on a GPU, what `gpuMemoryUtilization` leaves.
   */
  readonly kvCacheMemoryBytes?: number | null;
  /** Run steps over a paged KV cache as they are, without padded shapes and captured CUDA graphs. Default false. */
  readonly enforceEager?: boolean;
  /** The share of a GPU's memory that weights, runs and the KV cache may take together. Default 0.9. */
  readonly gpuMemoryUtilization?: number;
  /** The largest number of tokens computed in one step. */
  readonly maxNumBatchedTokens: number;
  /** The largest number of requests that wait for a slot. One more is rejected with `queue_full`. */
  readonly maxNumWaiting: number;
  /**
   * Time limit of a step, after which the engine counts as stalled; after twice as long, requests are ended. Default:
   * `defaultEngineLimits`.
   */
  readonly stepTimeoutMs?: number;
  /** Compute two tokens before the engine is ready, so that the first request does not wait for kernels. Default false. */
  readonly warmUp?: boolean;
  /** Read the files of the weights into the system's cache while sessions are created. Default false. */
  readonly preload?: boolean;
  /** Reuse cached keys and values for shared prompt prefixes, images included. Default true. */
  readonly enablePrefixCaching?: boolean;
  /** Drafts for all requests; null or left out: only for requests that ask for them. */
  readonly speculativeConfig?: SpeculativeConfig | null;
  readonly logitsProcessors: readonly LogitsProcessorReference[];
  /**
   * Folders in which dotted module paths of logits processors are looked up. Packages are found in their node_modules
   * and in that of the working directory.
   */
  readonly logitsProcessorPath: readonly string[];
  /** Threads of one ONNX Runtime call; null is the number of physical cores that the process may use. */
  readonly numThreads: number | null;
  /** Stores downloaded checkpoints, quantised weights and built graphs. */
  readonly cacheFolder: string;
  /** Used only if the model is a repository of the hub. */
  readonly hub?: HubConfig;
  /** URL of an emulator of Google Cloud Storage, which needs no credentials. Null or left out: Google's. */
  readonly gcsEmulatorUrl?: string | null;
  /** Used only if the model is an `az://` reference. */
  readonly azure?: AzureConfig;
  readonly imageLimits: ImageLimits;
  /** Default: `defaultVideoLimitsFor` the images. */
  readonly videoLimits?: VideoLimits;
  /** Default: `defaultDocumentLimits`. */
  readonly documentLimits?: DocumentLimits;
  /** Limits of the image caches. Default: `defaultCacheConfig`. */
  readonly caches?: CacheConfig;
  /**
   * Show the model every image of a prompt. If false, it sees only the last one, and the tokens of the others keep the
   * embedding of the placeholder. Default true.
   */
  readonly addAllImagesToPrompt?: boolean;
  /** Accept precomputed image embeddings in requests. They are used without verification. Default false. */
  readonly enableMmEmbeds?: boolean;
  /** Definitions of models, as `module:export`. They come before those that ship with Fovea. Default: none. */
  readonly modelDefinitions?: readonly string[];
  /** Folders in which the modules of `modelDefinitions` and packages with such definitions are looked up. Default ".". */
  readonly modelDefinitionPath?: readonly string[];
  /** Name of the pipeline that gives a text model its vision part. Null or left out: the model's name decides. */
  readonly multimodalPipeline?: string | null;
  /** Folders of pipeline modules. Default: only installed packages and the pipelines that ship with Fovea. */
  readonly pipelinePath?: readonly string[];
  /** Parameters of the pipeline, such as the folders of its weights. */
  readonly pipelineParams?: Readonly<Record<string, unknown>>;
  /** Type of the vision tower's weights and activations. Null or left out: that of the decoder, but not quantised. */
  readonly visionDtype?: DtypeName | null;
  /** Device of the vision tower. Null or left out: that of the decoder. */
  readonly visionDevice?: DeviceName | null;
  /** Type of the projector after the tower. Null or left out: that of the tower. */
  readonly projectorDtype?: DtypeName | null;
  /** Must be the tower's: both are one graph. */
  readonly projectorDevice?: DeviceName | null;
  /** Changes to the checkpoint's image processor options, as preprocessor_config.json names them. */
  readonly mmProcessorOptions?: Readonly<Record<string, unknown>>;
  /** Instead of the checkpoint's chat template: Jinja text, or the path of a file with it. */
  readonly chatTemplate?: string | null;
  /** Default `auto`. */
  readonly chatTemplateContentFormat?: ChatTemplateContentFormat;
}
