/** Plans how many KV slots share the memory of the host, and how many blocks of pages they may take. */
import { totalmem } from "node:os";

import type { EngineConfig } from "../contract/config.ts";
import { layersOf } from "../models/decoder-shape.ts";
import { bytesPerElement } from "../runtime/element-type.ts";
import { memoryShareBytes } from "../runtime/machine-memory.ts";
import { releasablePageBytes } from "../runtime/page-memory.ts";
import type { KvCapacity } from "./kv-manager.ts";
import { largestSlot } from "./kv-tensors.ts";
import { keepsKvOnHost, kvRoomBytes, numSequencesThatFit, planKvCache } from "./memory-plan.ts";
import type { HostMemory, KvShape } from "./memory-plan.ts";

/** See `SlotBlocks`. */
export interface SlotBlockPlan {
  readonly numSlots: number;
  /** Positions of a slot in memory, so that every head starts at a page. */
  readonly slotLength: number;
  readonly pageBytes: number;
  /** Bytes of the keys, or of the values, of one token of one head. */
  readonly headBytes: number;
  /** All blocks, with the recurrent states of all slots. */
  readonly totalBytes: number;
  readonly capacity: KvCapacity;
}

export function numBlocksOf({ headBytes, pageBytes }: SlotBlockPlan, numTokens: number): number {
  return Math.ceil((numTokens * headBytes) / pageBytes);
}

/** Whole tokens. */
export function numTokensIn({ headBytes, pageBytes }: SlotBlockPlan, numBlocks: number): number {
  return Math.floor((numBlocks * pageBytes) / headBytes);
}

/** Far less than the addresses of a process (2^47 bytes), some of which are taken. */
const MAX_RESERVED_BYTES = 2 ** 44;

/** Linux refuses a single mapping that is larger than all memory. */
const MAX_SHARE_OF_MEMORY = 0.9;

type SlotSettings = Pick<EngineConfig, "device" | "dataParallelSize" | "maxNumSequences" | "kvCacheMemoryBytes">;

export interface SlotBlockOptions {
  readonly maxNumSequences: number;
  /** Tokens of the longest sequence. */
  readonly maxLen: number;
  /** Null where pages cannot be given back; see `releasablePageBytes`. */
  readonly pageBytes: number | null;
  readonly totalMemoryBytes: number;
}

/**
 * Null if slots have room for sequences of full length: all of `maxNumSequences`, or as many as blocks would allow; also
 * null for layers with heads of different sizes, whose pages hold different numbers of tokens. One sequence of full
 * length always fits beside the least that all other slots hold.
 */
export function planSlotBlocks(
  decoder: KvShape,
  { maxNumSequences, maxLen, pageBytes, totalMemoryBytes }: SlotBlockOptions,
  memory: HostMemory,
): SlotBlockPlan | null {
  if (pageBytes === null || decoder.form === "export") return null;
  const numAtFullLength = numSequencesThatFit(decoder, { maxNumSequences, maxLen }, memory);
  if (numAtFullLength === maxNumSequences) return null;
  const layers = layersOf(decoder);
  const { headDim } = layers[0]!;
  if (layers.some((layer) => layer.headDim !== headDim)) return null;
  const headBytes = headDim * bytesPerElement(decoder.kvElementType);
  const slotLength = alignedLength(maxLen, headBytes, pageBytes);
  const { bytesPerToken, stateBytesPerSequence } = planKvCache(decoder, { numSlots: 1, maxLen });
  const numHeads = layers.reduce((sum, { numKvHeads }) => sum + numKvHeads, 0);
  const blockBytes = 2 * numHeads * pageBytes;
  const blocksPerSequence = Math.ceil((maxLen * headBytes) / pageBytes);
  const roomBytes = kvRoomBytes(memory);
  const tensorBytes = largestSlot(decoder, slotLength) * bytesPerElement(decoder.kvElementType);
  const numSlots = Math.min(
    maxNumSequences,
    Math.floor((roomBytes - (blocksPerSequence - 1) * blockBytes) / (blockBytes + stateBytesPerSequence)),
    Math.floor(MAX_RESERVED_BYTES / (bytesPerToken * slotLength)),
    Math.floor((totalMemoryBytes * MAX_SHARE_OF_MEMORY) / tensorBytes),
  );
  if (numSlots <= numAtFullLength) return null;
  const stateBytes = numSlots * stateBytesPerSequence;
  const numBlocks = Math.floor((roomBytes - stateBytes) / blockBytes);
  return {
    numSlots,
    slotLength,
    pageBytes,
    headBytes,
    totalBytes: numBlocks * blockBytes + stateBytes,
    capacity: {
      blockSize: Math.max(1, Math.floor(pageBytes / headBytes)),
      numBlocks,
      numTokens: Math.floor((numBlocks * pageBytes) / headBytes),
    },
  };
}

/** For this machine. Null on a device, too. */
export function planSlotBlocksOf(
  settings: SlotSettings,
  decoder: KvShape & { readonly weightBytes: number },
  maxLen: number,
): SlotBlockPlan | null {
  const { device, maxNumSequences, kvCacheMemoryBytes } = settings;
  if (!keepsKvOnHost(device, decoder)) return null;
  const { weightBytes } = decoder;
  return planSlotBlocks(
    decoder,
    { maxNumSequences, maxLen, pageBytes: releasablePageBytes(), totalMemoryBytes: totalmem() },
    { weightBytes, machineBytes: memoryShareBytes(settings, decoder), maxKvBytes: kvCacheMemoryBytes },
  );
}

/** The shortest length, of at least `maxLen` tokens, that is a whole number of pages. */
function alignedLength(maxLen: number, headBytes: number, pageBytes: number): number {
  const step = pageBytes / greatestCommonDivisor(pageBytes, headBytes);
  return Math.ceil(maxLen / step) * step;
}

function greatestCommonDivisor(left: number, right: number): number {
  return right === 0 ? left : greatestCommonDivisor(right, left % right);
}
