/** Plans the memory of the device on which a model would run: the card's, and the room for keys and values. */
import type { DeviceName, EngineConfig } from "../contract/config.ts";
import { defaultEngineLimits } from "../contract/default-limits.ts";
import { planGpuMemory } from "../kv/gpu-plan.ts";
import type { GpuPlan } from "../kv/gpu-plan.ts";
import type { KvCapacity } from "../kv/kv-manager.ts";
import { kvMemoryOf, kvRoomBytes, numSequencesThatFit, planEncoderCache, planKvCache } from "../kv/memory-plan.ts";
import type { KvShape } from "../kv/memory-plan.ts";
import { blockCapacity, planBlocks } from "../kv/plan-blocks.ts";
import { planSlotBlocksOf } from "../kv/plan-slot-blocks.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import type { ModelPlan } from "../models/plan-checkpoint.ts";
import type { CudaDevice } from "../runtime/cuda-driver.ts";
import type { WorstImage } from "./worst-image.ts";

/** A checkpoint as an engine would load it. */
export interface PlannedModel extends Pick<ModelPlan, "decoder" | "costs" | "maxModelLen" | "kvLayout"> {
  /** Of the decoder. */
  readonly weightBytes: number;
  /** Of an image or of given embeddings; 0 without both. */
  readonly maxEmbeddings: number;
}

/**
 * The GPU's memory as a start would divide it.
 *
 * @param worstImage Null if no images are encoded.
 * @param visionDevice Where images would be encoded.
 */
export function planCard(
  config: EngineConfig,
  { decoder, costs, weightBytes, maxModelLen, kvLayout, maxEmbeddings }: PlannedModel,
  { memoryBytes }: CudaDevice,
  worstImage: WorstImage | null,
  visionDevice: DeviceName,
): GpuPlan {
  const isPaged = kvLayout?.kind === "paged";
  const encodesOnCard = visionDevice === "cuda";
  return planGpuMemory(costs, {
    cardBytes: memoryBytes,
    utilization: config.gpuMemoryUtilization ?? defaultEngineLimits.gpuMemoryUtilization,
    maxKvBytes: config.kvCacheMemoryBytes,
    weights: { decoder: weightBytes, visionEncoder: encodesOnCard ? costs.weights.visionEncoder : 0 },
    isPaged,
    maxNumSequences: config.maxNumSequences,
    maxNumBatchedTokens: config.maxNumBatchedTokens,
    maxModelLen,
    outputWidth: outputWidthOf(decoder),
    numEmbeddings: encodesOnCard ? (worstImage?.numEmbeddings ?? 0) : 0,
    featureBytes: isPaged ? planEncoderCache(decoder.imageWidth, maxEmbeddings).maxBytes : 0,
  });
}

export interface KvPlan {
  /** Null for slots. */
  readonly blocks: KvCapacity | null;
  /** Null if slots do not share memory. */
  readonly slotBlocks: ReturnType<typeof planSlotBlocksOf> | null;
  /** Sequences that run together; at least 1. */
  readonly maxNumSequences: number;
}

/**
 * The room for keys and values.
 *
 * @param machineBytes Memory of the machine.
 * @param gpuRoomBytes Memory of the GPU for keys and values; 0 if it is unknown.
 */
export function planKv(
  config: EngineConfig,
  { decoder, weightBytes, maxModelLen, kvLayout }: PlannedModel,
  machineBytes: number,
  gpuRoomBytes: number,
): KvPlan {
  const { device, maxNumSequences, kvCacheMemoryBytes: maxKvBytes } = config;
  const room = { weightBytes, machineBytes, maxKvBytes };
  if (kvLayout?.kind === "paged") {
    const roomBytes = device === "cpu" ? kvRoomBytes(room) : gpuRoomBytes;
    const blocks = planBlocksOf(config, decoder, kvLayout.blockSize, { maxLen: maxModelLen, roomBytes });
    return { blocks, slotBlocks: null, maxNumSequences };
  }
  const slotBlocks = planSlotBlocksOf(config, { ...decoder, weightBytes }, maxModelLen);
  if (slotBlocks !== null) return { blocks: null, slotBlocks, maxNumSequences: slotBlocks.numSlots };
  const numFitting = numSequencesThatFit(
    decoder,
    { maxNumSequences, maxLen: maxModelLen },
    kvMemoryOf(device, decoder, room),
  );
  return { blocks: null, slotBlocks: null, maxNumSequences: Math.max(1, numFitting) };
}

/** The blocks that an engine would have; those of one sequence where there is no room, or it is unknown. */
function planBlocksOf(
  { device, maxNumSequences, numBlocks }: EngineConfig,
  decoder: KvShape,
  blockSize: number,
  { maxLen, roomBytes }: { readonly maxLen: number; readonly roomBytes: number },
): KvCapacity {
  const fewest = Math.ceil(maxLen / blockSize) + 1;
  const plan = { blockSize, maxNumSequences, maxLen, roomBytes, takesAllRoom: device !== "cpu" };
  const { reservedBytes } = planKvCache(
    decoder,
    { numSlots: maxNumSequences, maxLen },
    blockCapacity(blockSize, fewest),
  );
  const hasRoom = reservedBytes <= roomBytes;
  return planBlocks(decoder, { ...plan, numBlocks: numBlocks ?? (hasRoom ? null : fewest) });
}
