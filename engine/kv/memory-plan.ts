/**
 * What an engine's memory is taken by, in bytes, from its settings and the shapes of its model. The engine sizes its
 * caches by these functions, and `fovea check` prints what they say.
 */
import type { DeviceName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { DecoderExport, DecoderGraph, DecoderShape } from "../models/built-model.ts";
import type { ModelCosts, WeightBytes } from "../models/model-costs.ts";

export type KvShape = Pick<DecoderShape, "numLayers" | "numKvHeads" | "headDim" | "kvElementType"> & {
  /** Default: in place. */
  readonly form?: (DecoderGraph | DecoderExport)["form"];
};

export interface KvCachePlan {
  readonly bytesPerToken: number;
  /** Of one sequence of the greatest length. */
  readonly bytesPerSequence: number;
  /** For all sequences; on the host only what is touched is committed. */
  readonly reservedBytes: number;
}

const kvElementBytes: Readonly<Record<DecoderShape["kvElementType"], number>> = { float32: 4, float16: 2 };

/**
 * A key and a value of `headDim` numbers for every layer and head, for each of a sequence's tokens. An export that is not
 * run in place writes those of one sequence into memory beside those of all.
 */
export function planKvCache(
  { form, numLayers, numKvHeads, headDim, kvElementType }: KvShape,
  { numSlots, maxLen }: { readonly numSlots: number; readonly maxLen: number },
): KvCachePlan {
  const bytesPerToken = 2 * numLayers * numKvHeads * headDim * kvElementBytes[kvElementType];
  const bytesPerSequence = bytesPerToken * maxLen;
  const numSpareSlots = form === "export" ? 1 : 0;
  return { bytesPerToken, bytesPerSequence, reservedBytes: bytesPerSequence * (numSlots + numSpareSlots) };
}

/** Embeddings of images beyond the ones in use; a 336-pixel LLaVA 1.5 image takes 9 MiB at a hidden size of 4096. */
const encoderCacheBytes = 64 * 2 ** 20;

export interface EncoderCachePlan {
  /** Room of the cache; never less than the largest image needs. */
  readonly maxNumEmbeddings: number;
  readonly maxBytes: number;
}

/** @param maxEmbeddingsPerImage 0 for a model that takes no images. */
export function planEncoderCache(hiddenSize: number, maxEmbeddingsPerImage: number): EncoderCachePlan {
  if (maxEmbeddingsPerImage === 0) return { maxNumEmbeddings: 0, maxBytes: 0 };
  const embeddingBytes = hiddenSize * Float32Array.BYTES_PER_ELEMENT;
  const maxNumEmbeddings = Math.max(maxEmbeddingsPerImage, Math.floor(encoderCacheBytes / embeddingBytes));
  return { maxNumEmbeddings, maxBytes: maxNumEmbeddings * embeddingBytes };
}

/** Node, ONNX Runtime, the tokenizer and the threads: measured after the start, 105 MiB without images, 150 with. */
const programBytes = 160 * 2 ** 20;

/** What else requests and their garbage take of this process: up to 91 MiB in a dummy run of 512 small images. */
const garbageBytes = 96 * 2 ** 20;

export interface MemoryPlan {
  readonly weights: WeightBytes;
  readonly kvCache: KvCachePlan;
  readonly encoderCache: EncoderCachePlan;
  /** What one step needs beside them, at its largest. */
  readonly step: {
    readonly decoderBytes: number;
    readonly visionEncoderBytes: number;
    /** Float32 [maxNumSequences, vocabSize]. */
    readonly logitsBytes: number;
  };
  /** Most that is remembered of images in this process. */
  readonly processorCacheBytes: number;
  readonly programBytes: number;
  /** Processed images of the sequences that run, and garbage. */
  readonly requestBytes: number;
  /** All of it, every sequence at its greatest length. */
  readonly totalBytes: number;
}

export interface MemorySettings {
  readonly maxNumSequences: number;
  readonly maxNumBatchedTokens: number;
  readonly maxModelLen: number;
  /** 0 for a model that takes no images. */
  readonly maxEmbeddingsPerImage: number;
  /** Of the largest image that is expected, where that has fewer. */
  readonly expectedEmbeddingsPerImage?: number;
  /** Of the processed images of one sequence, as many and as large as it has room for. */
  readonly imageBytesPerSequence: number;
  readonly processorCacheBytes: number;
}

export function planMemory(
  decoder: KvShape & Pick<DecoderShape, "hiddenSize" | "vocabSize">,
  { weights, decoderRunBytes, visionRunBytes }: ModelCosts,
  settings: MemorySettings,
): MemoryPlan {
  const { maxNumSequences, maxNumBatchedTokens, maxModelLen, maxEmbeddingsPerImage } = settings;
  const kvCache = planKvCache(decoder, { numSlots: maxNumSequences, maxLen: maxModelLen });
  const encoderCache = planEncoderCache(decoder.hiddenSize, maxEmbeddingsPerImage);
  const chunkLength = Math.min(maxNumBatchedTokens, maxModelLen);
  const step = {
    // A run computes a piece of one prompt, or the newest tokens of all sequences.
    decoderBytes: Math.max(
      decoderRunBytes({ numSequences: 1, numTokens: chunkLength }),
      decoderRunBytes({ numSequences: maxNumSequences, numTokens: 1 }),
    ),
    visionEncoderBytes: visionRunBytes(settings.expectedEmbeddingsPerImage ?? maxEmbeddingsPerImage),
    logitsBytes: maxNumSequences * decoder.vocabSize * Float32Array.BYTES_PER_ELEMENT,
  };
  const processorCacheBytes = maxEmbeddingsPerImage === 0 ? 0 : settings.processorCacheBytes;
  const requestBytes = garbageBytes + maxNumSequences * settings.imageBytesPerSequence;
  const parts = [...Object.values(weights), ...Object.values(step)];
  const totalBytes =
    parts.reduce((sum, bytes) => sum + bytes, 0) +
    kvCache.reservedBytes +
    encoderCache.maxBytes +
    processorCacheBytes +
    programBytes +
    requestBytes;
  return { weights, kvCache, encoderCache, step, processorCacheBytes, programBytes, requestBytes, totalBytes };
}

export function keepsKvOnHost(device: DeviceName, { form }: KvShape): boolean {
  return device === "cpu" || form === "export";
}

/** Of the machine's memory: for steps, images, requests and whatever else runs there. */
const shareOfRest = 0.1;

/** What a host has, and what of it the weights take. */
export interface HostMemory {
  readonly weightBytes: number;
  readonly machineBytes: number;
}

function kvRoomBytes({ weightBytes, machineBytes }: HostMemory): number {
  return machineBytes * (1 - shareOfRest) - weightBytes - programBytes;
}

/**
 * How many sequences of the greatest length have room for their KV beside the weights and the rest, `maxNumSequences` at
 * most; 0 where not even one has.
 */
export function numSequencesThatFit(
  decoder: KvShape,
  { maxNumSequences, maxLen }: { readonly maxNumSequences: number; readonly maxLen: number },
  memory: HostMemory,
): number {
  const { bytesPerSequence, reservedBytes } = planKvCache(decoder, { numSlots: maxNumSequences, maxLen });
  const numTooMany = Math.ceil((reservedBytes - kvRoomBytes(memory)) / bytesPerSequence);
  return Math.max(0, maxNumSequences - Math.max(0, numTooMany));
}

/**
 * As `numSequencesThatFit`.
 *
 * @throws EngineError `invalid_configuration` where not even one fits, with both numbers and the length that would.
 */
export function requireRoomForSequences(
  decoder: KvShape,
  lengths: { readonly maxNumSequences: number; readonly maxLen: number },
  memory: HostMemory,
): number {
  const numFitting = numSequencesThatFit(decoder, lengths, memory);
  if (numFitting > 0) return numFitting;
  const { maxLen } = lengths;
  const { bytesPerToken, reservedBytes } = planKvCache(decoder, { numSlots: 1, maxLen });
  const numTokens = Math.floor(maxLen - (reservedBytes - kvRoomBytes(memory)) / bytesPerToken);
  const advice = numTokens > 0 ? `${numTokens} tokens would fit.` : "Not one token would fit.";
  throw new EngineError(
    "invalid_configuration",
    `The KV cache of one sequence of ${maxLen} tokens does not fit into memory: it takes ${formatGibibytes(reservedBytes)}, ` +
      `the weights ${formatGibibytes(memory.weightBytes)}; the machine has ${formatGibibytes(memory.machineBytes)}. ${advice}`,
  );
}

/**
 * Refuses a KV cache that the machine could never fill: it would be ended by the system once its sequences had grown,
 * with nothing to say why.
 *
 * @throws EngineError `invalid_configuration` with both numbers and what would fit.
 */
export function requireRoomForKv(
  { bytesPerToken, bytesPerSequence, reservedBytes }: KvCachePlan,
  { numSlots, maxLen }: { readonly numSlots: number; readonly maxLen: number },
  machineBytes: number,
): void {
  if (reservedBytes <= machineBytes) return;
  const numFitting = Math.floor(machineBytes / bytesPerSequence);
  const advice =
    numFitting > 0
      ? `${numFitting} sequences of that length would fit, or ${numSlots} of ${Math.floor(machineBytes / numSlots / bytesPerToken)} tokens.`
      : `One sequence of ${Math.floor(machineBytes / bytesPerToken)} tokens would fit.`;
  throw new EngineError(
    "invalid_configuration",
    `The KV cache of ${numSlots} sequences of ${maxLen} tokens does not fit into memory. ` +
      `It takes ${formatGibibytes(reservedBytes)}; the machine has ${formatGibibytes(machineBytes)}. ${advice}`,
  );
}

function formatGibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
