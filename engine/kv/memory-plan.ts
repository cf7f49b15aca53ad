/**
 * Memory that an engine takes, in bytes, from its settings and the shapes of its model. The engine sizes its caches
 * with these functions, and `fovea check` prints them.
 */
import type { DeviceName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { DecoderExport, DecoderGraph, DecoderShape } from "../models/built-model.ts";
import { kvWidths, outputWidthOf } from "../models/decoder-shape.ts";
import type { ExpertBytes, ModelCosts, WeightBytes } from "../models/model-costs.ts";
import { bytesPerElement } from "../runtime/element-type.ts";
import type { KvCapacity } from "./kv-manager.ts";
import { exportedStateBytes } from "./past-numbers.ts";
import { stateBytes } from "./state-cache.ts";
import { numStateRows, SNAPSHOTS_PER_SEQUENCE } from "./state-rows.ts";
import { SNAPSHOTS_PER_SLOT } from "./state-snapshots.ts";

export type KvShape = Pick<
  DecoderShape,
  "numLayers" | "numKvHeads" | "headDim" | "kvHeads" | "kvElementType" | "recurrent"
> & {
  /** Default: in place. */
  readonly form?: (DecoderGraph | DecoderExport)["form"];
  /** Of an export, which may keep more than its layers need. */
  readonly states?: DecoderExport["states"];
};

export interface KvCachePlan {
  readonly bytesPerToken: number;
  /** Recurrent states of one sequence, of any length; 0 for a decoder without them. */
  readonly stateBytesPerSequence: number;
  /** For one sequence of the maximum length, with its states. */
  readonly bytesPerSequence: number;
  /** For all sequences. On the host, only touched pages are committed. */
  readonly reservedBytes: number;
  /** Capacity of a paged cache, and of slots that share memory; null for slots that have all of it. */
  readonly blocks: KvCapacity | null;
}

/**
 * Each token of a sequence has a key and a value of `headDim` numbers for every layer and head. An export that does not
 * run in place additionally writes those of one sequence into memory of their own. Recurrent layers have states for
 * each sequence: with slots the newest and snapshots of earlier ones, with blocks one before and one after a run.
 */
export function planKvCache(
  decoder: KvShape,
  { numSlots, maxLen }: { readonly numSlots: number; readonly maxLen: number },
  blocks: KvCapacity | null = null,
): KvCachePlan {
  const { form, kvElementType, recurrent, states } = decoder;
  const numbersPerToken = 2 * kvWidths(decoder).reduce((sum, width) => sum + width, 0);
  const bytesPerToken = numbersPerToken * bytesPerElement(kvElementType);
  const ownRowBytes = recurrent === undefined ? 0 : stateBytes(recurrent);
  const rowBytes = states === undefined ? ownRowBytes : exportedStateBytes(states);
  const stateBytesPerSequence = (blocks === null ? 1 + SNAPSHOTS_PER_SLOT : 2 + SNAPSHOTS_PER_SEQUENCE) * rowBytes;
  const bytesPerSequence = bytesPerToken * maxLen + stateBytesPerSequence;
  const numSpareSlots = form === "export" ? 1 : 0;
  const reservedBytes =
    blocks === null
      ? bytesPerSequence * (numSlots + numSpareSlots)
      : bytesPerToken * blocks.blockSize * blocks.numBlocks + rowBytes * numStateRows(numSlots);
  return { bytesPerToken, stateBytesPerSequence, bytesPerSequence, reservedBytes, blocks };
}

/**
 * Embeddings of images that no request uses any more. A 336-pixel LLaVA 1.5 image takes 9 MiB at a hidden size of 4096.
 */
const ENCODER_CACHE_BYTES = 64 * 2 ** 20;

export interface EncoderCachePlan {
  /** Capacity of the cache; at least the largest image. */
  readonly maxNumEmbeddings: number;
  readonly maxBytes: number;
}

/** @param maxEmbeddingsPerImage 0 for a text model. */
export function planEncoderCache(imageWidth: number, maxEmbeddingsPerImage: number): EncoderCachePlan {
  if (maxEmbeddingsPerImage === 0) return { maxNumEmbeddings: 0, maxBytes: 0 };
  const embeddingBytes = imageWidth * Float32Array.BYTES_PER_ELEMENT;
  const maxNumEmbeddings = Math.max(maxEmbeddingsPerImage, Math.floor(ENCODER_CACHE_BYTES / embeddingBytes));
  return { maxNumEmbeddings, maxBytes: maxNumEmbeddings * embeddingBytes };
}

/** Node, ONNX Runtime, the tokenizer and the threads. Measured after the start: 105 MiB without images, 150 with. */
const PROGRAM_BYTES = 160 * 2 ** 20;

/** Further memory for requests and their garbage: up to 91 MiB in a dummy run of 512 small images. */
const GARBAGE_BYTES = 96 * 2 ** 20;

/** Graphs and the thread of a further copy, which shares the weights: 50 MB were measured. */
const COPY_BYTES = 48 * 2 ** 20;

export interface MemoryPlan {
  readonly weights: WeightBytes;
  /** Of adapters that requests choose; a part of the decoder's weights. */
  readonly adapterBytes: number;
  /** A part of the decoder's weights; null for a decoder without experts. */
  readonly experts: ExpertBytes | null;
  readonly kvCache: KvCachePlan;
  readonly encoderCache: EncoderCachePlan;
  /** The largest additional memory of one step. */
  readonly step: {
    readonly decoderBytes: number;
    readonly visionEncoderBytes: number;
    /** Float32 [maxNumSequences, outputWidth]. */
    readonly logitsBytes: number;
  };
  /** Graphs, steps and encoder caches of further copies that divide the sequences; 0 for one copy. */
  readonly furtherCopyBytes: number;
  /** Limit of the image caches of this process. */
  readonly processorCacheBytes: number;
  readonly programBytes: number;
  /** Processed images of running sequences, and garbage. */
  readonly requestBytes: number;
  /** The sum, with every sequence at its maximum length. */
  readonly totalBytes: number;
}

export interface MemorySettings {
  /** Copies of the model that divide the sequences among themselves. Default 1. */
  readonly numDividing?: number;
  readonly maxNumSequences: number;
  readonly maxNumBatchedTokens: number;
  readonly maxModelLen: number;
  /** Capacity of a paged KV cache; null or omitted for slots. */
  readonly blocks?: KvCapacity | null;
  /** Slots that share memory; null or omitted for a paged cache, and for slots that have memory at full length. */
  readonly slotBlocks?: { readonly capacity: KvCapacity; readonly totalBytes: number } | null;
  /** 0 for a text model. */
  readonly maxEmbeddingsPerImage: number;
  /** For the largest expected image, if that has fewer. */
  readonly expectedEmbeddingsPerImage?: number;
  /** For the processed images of one sequence: as many and as large as fit. */
  readonly imageBytesPerSequence: number;
  readonly processorCacheBytes: number;
}

export function planMemory(
  decoder: KvShape & Pick<DecoderShape, "imageWidth" | "vocabSize" | "outputWidth">,
  { weights, adapterBytes, experts, decoderRunBytes, visionRunBytes }: ModelCosts,
  settings: MemorySettings,
): MemoryPlan {
  const { maxNumSequences, maxNumBatchedTokens, maxModelLen, maxEmbeddingsPerImage } = settings;
  const { blocks, slotBlocks } = settings;
  const planned = planKvCache(decoder, { numSlots: maxNumSequences, maxLen: maxModelLen }, blocks);
  const shared = slotBlocks && { reservedBytes: slotBlocks.totalBytes, blocks: slotBlocks.capacity };
  const kvCache = { ...planned, ...shared };
  const encoderCache = planEncoderCache(decoder.imageWidth, maxEmbeddingsPerImage);
  const chunkLength = Math.min(maxNumBatchedTokens, maxModelLen);
  const step = {
    // A run computes a chunk of one prompt, or the newest tokens of all sequences.
    decoderBytes: Math.max(
      decoderRunBytes({ numSequences: 1, numTokens: chunkLength }),
      decoderRunBytes({ numSequences: maxNumSequences, numTokens: 1 }),
    ),
    visionEncoderBytes: visionRunBytes(settings.expectedEmbeddingsPerImage ?? maxEmbeddingsPerImage),
    logitsBytes: maxNumSequences * outputWidthOf(decoder) * Float32Array.BYTES_PER_ELEMENT,
  };
  const processorCacheBytes = maxEmbeddingsPerImage === 0 ? 0 : settings.processorCacheBytes;
  const requestBytes = GARBAGE_BYTES + maxNumSequences * settings.imageBytesPerSequence;
  const { numDividing = 1 } = settings;
  const copyBytes = COPY_BYTES + step.decoderBytes + step.visionEncoderBytes + encoderCache.maxBytes;
  const furtherCopyBytes = (numDividing - 1) * copyBytes;
  const parts = [...Object.values(weights), ...Object.values(step)];
  const totalBytes =
    parts.reduce((sum, bytes) => sum + bytes, 0) +
    furtherCopyBytes +
    kvCache.reservedBytes +
    encoderCache.maxBytes +
    processorCacheBytes +
    PROGRAM_BYTES +
    requestBytes;
  return {
    weights,
    adapterBytes,
    experts,
    kvCache,
    encoderCache,
    step,
    furtherCopyBytes,
    processorCacheBytes,
    programBytes: PROGRAM_BYTES,
    requestBytes,
    totalBytes,
  };
}

export function keepsKvOnHost(device: DeviceName, { form }: KvShape): boolean {
  return device === "cpu" || form === "export";
}

/** Share of the machine's memory that is left for steps, images, requests and other programs. */
const SHARE_OF_REST = 0.1;
/**
 * They take this much on a small machine, too: in a container of 700 MiB, full of keys and values, a model of 135 million
 * parameters in int8 left too little for the pages of files, and computed at half of its speed.
 */
const MIN_REST_BYTES = 160 * 2 ** 20;
/** A very small machine would have no room for keys and values otherwise. */
const MAX_SHARE_OF_REST = 0.25;

/** Memory of the host, and the part that the weights take. */
export interface HostMemory {
  readonly weightBytes: number;
  readonly machineBytes: number;
  /** Of the model, each with that much memory; for messages. Default 1. */
  readonly numCopies?: number;
  /** Limit of the settings for keys and values; null or left out: none. */
  readonly maxKvBytes?: number | null | undefined;
}

/** A device's memory is unknown before its first use, so that only the limit of the settings counts there. */
export function kvMemoryOf(device: DeviceName, decoder: KvShape, memory: HostMemory): HostMemory {
  return keepsKvOnHost(device, decoder) ? memory : { ...memory, weightBytes: 0, machineBytes: Infinity };
}

/** Memory left for keys and values on the host, in bytes. */
export function kvRoomBytes({ weightBytes, machineBytes, maxKvBytes }: HostMemory): number {
  const restBytes = Math.min(MIN_REST_BYTES, machineBytes * MAX_SHARE_OF_REST);
  const usedBytes = Math.min(machineBytes * (1 - SHARE_OF_REST), machineBytes - restBytes);
  return Math.min(usedBytes - weightBytes - PROGRAM_BYTES, maxKvBytes ?? Infinity);
}

/**
 * The number of sequences of maximum length whose KV fits in addition to the weights and the rest, at most
 * `maxNumSequences`; 0 if not even one fits.
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

const noTokenFits = "Not even one token would fit: choose a smaller model or dtype, or give the process more memory.";

/**
 * See `numSequencesThatFit`.
 *
 * @throws EngineError `invalid_configuration` if not even one fits; names both numbers and the length that would fit.
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
  const advice = numTokens > 0 ? `${numTokens} tokens would fit.` : noTokenFits;
  const { maxKvBytes } = memory;
  if (typeof maxKvBytes === "number" && kvRoomBytes(memory) === maxKvBytes) {
    throw new EngineError(
      "invalid_configuration",
      `The KV cache of one sequence of ${maxLen} tokens takes ${reservedBytes} bytes; its limit is ${maxKvBytes} bytes. ${advice}`,
      { setting: "kvCacheMemoryBytes" },
    );
  }
  throw new EngineError(
    "invalid_configuration",
    `The KV cache of one sequence of ${maxLen} tokens does not fit into memory: it takes ${formatBytes(reservedBytes)}, ` +
      `the weights ${formatBytes(memory.weightBytes)}, the program ${formatBytes(PROGRAM_BYTES)}; the machine has ${formatBytes(memory.machineBytes)}${ofCopies(memory)}. ${advice}`,
    numTokens > 0 ? { setting: "maxModelLen" } : {},
  );
}

function ofCopies({ numCopies = 1 }: HostMemory): string {
  return numCopies === 1 ? "" : ` for each of ${numCopies} copies`;
}

/**
 * Rejects a KV cache that the machine could never fill, or a GPU has no room for. The system would kill the process
 * without a message once the sequences had grown; a GPU would not say what would fit.
 *
 * @param owner Of the memory, for the error.
 * @throws EngineError `invalid_configuration` with both numbers and the size that would fit.
 */
export function requireRoomForKv(
  { bytesPerToken, stateBytesPerSequence, bytesPerSequence, reservedBytes }: KvCachePlan,
  { numSlots, maxLen }: { readonly numSlots: number; readonly maxLen: number },
  roomBytes: number,
  owner: "machine" | "GPU" = "machine",
): void {
  if (reservedBytes <= roomBytes) return;
  const numFitting = Math.floor(roomBytes / bytesPerSequence);
  const tokensIn = (bytes: number): number => Math.max(0, Math.floor((bytes - stateBytesPerSequence) / bytesPerToken));
  const advice =
    numFitting > 0
      ? `${numFitting} sequences of that length would fit, or ${numSlots} of ${tokensIn(roomBytes / numSlots)} tokens.`
      : tokensIn(roomBytes) > 0
        ? `One sequence of ${tokensIn(roomBytes)} tokens would fit.`
        : owner === "GPU"
          ? "Not even one token would fit."
          : noTokenFits;
  const has = owner === "GPU" ? "beside weights and activations, the GPU has" : "the machine has";
  const more =
    owner === "GPU"
      ? " A smaller dtype, a higher GPU memory utilization and a larger GPU leave more for the cache."
      : "";
  throw new EngineError(
    "invalid_configuration",
    `The KV cache of ${numSlots} sequences of ${maxLen} tokens does not fit into memory. ` +
      `It takes ${formatBytes(reservedBytes)}; ${has} ${formatBytes(Math.max(0, roomBytes))}. ${advice}${more}`,
    tokensIn(roomBytes) > 0 ? { setting: "maxNumSequences" } : {},
  );
}

/** Bytes of the weights on a device; 0 for a part that another device has. */
export interface DeviceWeights {
  readonly decoder: number;
  readonly visionEncoder: number;
}

/** @throws EngineError `invalid_configuration` if a device has too little free memory for the weights alone. */
export function requireRoomForWeights({ decoder, visionEncoder }: DeviceWeights, freeBytes: number): void {
  if (decoder + visionEncoder <= freeBytes) return;
  const parts = [
    ...(decoder > 0 ? [`the decoder's take ${formatBytes(decoder)}`] : []),
    ...(visionEncoder > 0 ? [`the vision encoder's take ${formatBytes(visionEncoder)}`] : []),
  ];
  throw new EngineError(
    "invalid_configuration",
    `The weights do not fit into the GPU's memory: ${parts.join(", ")}, and ${formatBytes(freeBytes)} are free. ` +
      "Choose a smaller dtype, a larger GPU, or end other programs on it" +
      `${decoder > 0 && visionEncoder > 0 ? ", or encode images on the CPU (vision device cpu)" : ""}.`,
  );
}

/**
 * Memory left for keys and values on a GPU, in bytes: the share that the settings allow, less everything in use. Measure
 * it after the weights are loaded and the largest runs have allocated their memory.
 */
export function gpuKvRoomBytes(
  { totalBytes, freeBytes }: { readonly totalBytes: number; readonly freeBytes: number },
  { utilization, maxKvBytes }: { readonly utilization: number; readonly maxKvBytes?: number | null | undefined },
): number {
  return Math.min(totalBytes * utilization - (totalBytes - freeBytes), maxKvBytes ?? Infinity);
}

function formatBytes(bytes: number): string {
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
