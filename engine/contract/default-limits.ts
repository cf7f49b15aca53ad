/** The default limits of an engine. The settings of the service have the same defaults. */
import type { DecodeLimits } from "../images/decode-cost.ts";
import type { CacheConfig, DeviceName, DocumentLimits, EngineConfig, ImageLimits, VideoLimits } from "./config.ts";

const MEBIBYTE = 1024 ** 2;

export const defaultEngineLimits = {
  maxNumSequences: 32,
  maxNumWaiting: 256,
  /** vLLM's default. The rest is for other programs and for memory that CUDA's libraries allocate by themselves. */
  gpuMemoryUtilization: 0.9,
  /**
   * Longer than any successful step: the first on a GPU, which compiles and tunes kernels for tens of seconds, and a
   * prompt chunk on a slow CPU, where 512 tokens of 7B parameters take 15 s in int4 and over a minute in float32.
   */
  stepTimeoutMs: 120_000,
} as const;

/** A token of the prompt and one of the output. */
export const MIN_MODEL_LEN = 2;

/**
 * Tokens per step. Longer prompts are split, so that running requests do not stall. On an H200, 1,024 tokens of 8 billion
 * weights take 27 ms, where 512 take 15 to 19: up to 1.4 times as many tokens per second.
 */
export function defaultBatchedTokens(device: DeviceName): number {
  return device === "cuda" ? 1024 : 512;
}

/**
 * The longest prompt whose tokens are counted for models with a shorter length. A client that cuts documents to fit
 * needs the count of the whole document.
 */
export const MAX_COUNTED_TOKENS = 131_072;

export const defaultImageLimits = {
  maxImagesPerPrompt: 16,
  maxImageBytes: 20 * MEBIBYTE,
  maxImagePixels: 64 * 1024 ** 2,
  fetchTimeoutMs: 10_000,
} as const;

/**
 * One picture may take one or two seconds of a core: 50 megapixels of progressive JPEG or 16-bit PNG, or 44 of AVIF. A
 * request may have four of those, or sixteen photographs of 12 megapixels. The time limit leaves room for a busy
 * machine.
 */
export const defaultDecodeLimits: DecodeLimits = {
  maxDecodeCost: 2 ** 27,
  maxRequestDecodeCost: 2 ** 29,
  decodeTimeoutMs: 20_000,
};

/** Thirty-two frames at most are vLLM's default, too. */
export const defaultVideoLimits: VideoLimits = {
  maxVideosPerPrompt: 1,
  maxVideoBytes: 64 * MEBIBYTE,
  maxVideoFrames: 32,
  numFrames: 8,
  fetchTimeoutMs: 30_000,
  videoDecodeTimeoutMs: 30_000,
};

/**
 * For a deployment that says nothing of videos. Without images, it has no videos either, so that the vision encoder is
 * not loaded.
 */
export function defaultVideoLimitsFor({ maxImagesPerPrompt }: Pick<ImageLimits, "maxImagesPerPrompt">): VideoLimits {
  return maxImagesPerPrompt > 0 ? defaultVideoLimits : { ...defaultVideoLimits, maxVideosPerPrompt: 0 };
}

/** Numbers of images and of videos that a deployment accepts per prompt. With 0 of both, it needs no vision encoder. */
export function itemsPerPrompt({
  imageLimits,
  videoLimits = defaultVideoLimitsFor(imageLimits),
}: Pick<EngineConfig, "imageLimits" | "videoLimits">): { readonly image: number; readonly video: number } {
  return { image: imageLimits.maxImagesPerPrompt, video: videoLimits.maxVideosPerPrompt };
}

/** Whether a prompt may bring the output of the vision encoder in place of its images, so that none is needed. */
export function takesOnlyEmbeddings(
  settings: Pick<EngineConfig, "imageLimits" | "videoLimits" | "enableMmEmbeds">,
): boolean {
  const { image, video } = itemsPerPrompt(settings);
  return settings.enableMmEmbeds === true && image === 0 && video === 0;
}

/** At 144 dots per inch, a page of A4 has 1,191 x 1,684 pixels, and small print is legible. */
export const defaultDocumentLimits: DocumentLimits = {
  maxDocumentBytes: 32 * MEBIBYTE,
  dotsPerInch: 144,
  content: "images",
  renderTimeoutMs: 30_000,
};

/** Below, print is not legible; above, no model sees more. */
export const dotsPerInchRange = { min: 36, max: 600 } as const;

/**
 * A quarter of a GiB holds the pixels of 190 images of 336 x 336, or of 5,000 of the shipped checkpoint's. That is
 * enough for the repeats of a replica with a few requests per second; Redis, which outlives replicas, holds the rest.
 */
export const defaultCacheConfig: CacheConfig = {
  maxMemoryBytes: 256 * MEBIBYTE,
  timeToLiveSeconds: 86_400,
  maxValueBytes: 32 * MEBIBYTE,
  commandTimeoutMs: 50,
  keyPrefix: "fovea",
};
