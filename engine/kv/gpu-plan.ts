/**
 * Estimates how a start would divide a GPU's memory, from the size of the card and the shapes of the model. The start
 * measures what this estimates; see `loadGraphs`.
 */
import type { ModelCosts } from "../models/model-costs.ts";
import { gpuKvRoomBytes } from "./memory-plan.ts";
import type { DeviceWeights } from "./memory-plan.ts";

export interface GpuPlan {
  readonly cardBytes: number;
  /** The part of the card's memory that the settings allow. */
  readonly shareBytes: number;
  readonly weightBytes: number;
  /** Estimate: values between the nodes of the largest step and of the largest image, logits, and image features. */
  readonly activationBytes: number;
  /** Memory that CUDA's context and libraries take by themselves. */
  readonly contextBytes: number;
  /** Left for keys and values; negative if the rest does not fit. */
  readonly kvRoomBytes: number;
}

export interface GpuPlanOptions {
  readonly cardBytes: number;
  readonly utilization: number;
  readonly maxKvBytes: number | null | undefined;
  readonly weights: DeviceWeights;
  readonly isPaged: boolean;
  readonly maxNumSequences: number;
  readonly maxNumBatchedTokens: number;
  readonly maxModelLen: number;
  readonly outputWidth: number;
  /** Of the largest expected image; 0 if the GPU encodes none. */
  readonly numEmbeddings: number;
  /** Capacity of the pool of image features in the GPU's memory, in bytes. */
  readonly featureBytes: number;
}

/** On an H200 with driver 580, 545 MiB are in use when a process has loaded its first, small session. */
const CONTEXT_BYTES = 560 * 2 ** 20;

export function planGpuMemory(
  { decoderRunBytes, visionRunBytes }: Pick<ModelCosts, "decoderRunBytes" | "visionRunBytes">,
  options: GpuPlanOptions,
): GpuPlan {
  const { cardBytes, utilization, maxKvBytes, weights, maxNumSequences, maxNumBatchedTokens, maxModelLen } = options;
  const numTogether = Math.min(maxNumSequences, maxNumBatchedTokens);
  // With blocks, one run computes all tokens of a step; with slots, a chunk of one prompt or the newest tokens.
  const stepBytes = options.isPaged
    ? decoderRunBytes({ numSequences: numTogether, numTokens: maxNumBatchedTokens })
    : Math.max(
        decoderRunBytes({ numSequences: 1, numTokens: Math.min(maxNumBatchedTokens, maxModelLen) }),
        decoderRunBytes({ numSequences: maxNumSequences, numTokens: 1 }),
      );
  const logitsBytes = maxNumSequences * options.outputWidth * Float32Array.BYTES_PER_ELEMENT;
  const imageBytes = options.numEmbeddings === 0 ? 0 : visionRunBytes(options.numEmbeddings);
  const weightBytes = weights.decoder + weights.visionEncoder;
  const activationBytes = stepBytes + imageBytes + logitsBytes + options.featureBytes;
  const usedBytes = weightBytes + activationBytes + CONTEXT_BYTES;
  return {
    cardBytes,
    shareBytes: cardBytes * utilization,
    weightBytes,
    activationBytes,
    contextBytes: CONTEXT_BYTES,
    kvRoomBytes: gpuKvRoomBytes(
      { totalBytes: cardBytes, freeBytes: cardBytes - usedBytes },
      { utilization, maxKvBytes },
    ),
  };
}
