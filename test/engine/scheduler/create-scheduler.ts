/** A scheduler with small limits, and requests for it, each field replaceable. */
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SpeculativeConfig } from "../../../engine/contract/speculative-config.ts";
import type { EngineRequest, ImageFeature } from "../../../engine/core/engine-request.ts";
import type { StepResult, StepResults } from "../../../engine/core/step-results.ts";
import { KvSlots } from "../../../engine/kv/kv-slots.ts";
import { SlotBlocks } from "../../../engine/kv/slot-blocks.ts";
import { SlotKvManager } from "../../../engine/kv/slot-kv-manager.ts";
import { isLastChunk } from "../../../engine/scheduler/scheduler-output.ts";
import type { SchedulerOutput } from "../../../engine/scheduler/scheduler-output.ts";
import { Scheduler } from "../../../engine/scheduler/scheduler.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import { EncoderCache } from "../../../engine/vision/encoder-cache.ts";

export interface SchedulerOverrides {
  readonly numSlots?: number;
  readonly maxModelLen?: number;
  readonly maxNumBatchedTokens?: number;
  readonly enoughPromptTokens?: number;
  readonly maxNumWaiting?: number;
  readonly maxNumEmbeddings?: number;
  readonly encodesInBackground?: boolean;
  readonly keepsImagesWhole?: boolean;
  readonly joinsImages?: boolean;
  readonly widensPrompts?: boolean;
  readonly speculativeConfig?: SpeculativeConfig;
  /** Blocks that the slots share; left out if each has memory for the longest sequence. Each has 8 tokens. */
  readonly numBlocks?: number;
}

export const eosTokenId = 2;

export interface SchedulerParts {
  readonly scheduler: Scheduler;
  readonly kvSlots: KvSlots;
  readonly encoderCache: EncoderCache;
}

export function createScheduler(overrides: SchedulerOverrides = {}): SchedulerParts {
  const { numSlots = 4, maxModelLen = 64, maxNumBatchedTokens = 16, maxNumWaiting = 8 } = overrides;
  const kvSlots = new KvSlots(numSlots, maxModelLen);
  const encoderCache = new EncoderCache(overrides.maxNumEmbeddings ?? 16);
  const scheduler = new Scheduler({
    maxNumBatchedTokens,
    enoughPromptTokens: overrides.enoughPromptTokens,
    maxNumWaiting,
    kvManager: new SlotKvManager(kvSlots, { canTransfer: true }, blocksOf(kvSlots, overrides.numBlocks)),
    encoderCache,
    eosTokenIds: new Set([eosTokenId]),
    maxModelLen,
    encodesInBackground: overrides.encodesInBackground,
    keepsImagesWhole: overrides.keepsImagesWhole,
    joinsImages: overrides.joinsImages,
    widensPrompts: overrides.widensPrompts,
    speculativeConfig: overrides.speculativeConfig,
    checksDrafts: overrides.speculativeConfig !== undefined,
  });
  return { scheduler, kvSlots, encoderCache };
}

function blocksOf(kvSlots: KvSlots, numBlocks: number | undefined): SlotBlocks | null {
  if (numBlocks === undefined) return null;
  const { numSlots, maxLen } = kvSlots;
  const capacity = { blockSize: 8, numBlocks, numTokens: 8 * numBlocks };
  const plan = { numSlots, slotLength: maxLen, pageBytes: 8, headBytes: 1, totalBytes: 0, capacity };
  return new SlotBlocks(kvSlots, plan, null);
}

export interface RequestOverrides {
  readonly numPromptTokens?: number;
  /** In place of `numPromptTokens` ascending ids. */
  readonly promptTokenIds?: readonly number[];
  readonly cacheSalt?: string | null;
  readonly images?: readonly ImageFeature[];
  readonly seed?: number;
  readonly priority?: number;
  readonly samplingParams?: Partial<SamplingParams> | undefined;
}

export function createRequest(requestId: string, overrides: RequestOverrides = {}): EngineRequest {
  return {
    requestId,
    promptTokenIds:
      overrides.promptTokenIds ?? Array.from({ length: overrides.numPromptTokens ?? 4 }, (_, index) => 10 + index),
    images: overrides.images ?? [],
    samplingParams: createSamplingParams({ temperature: 0, ...overrides.samplingParams }),
    badWordsTokenIds: [],
    cacheSalt: overrides.cacheSalt ?? null,
    grammar: null,
    seed: overrides.seed ?? 0,
    priority: overrides.priority ?? 0,
  };
}

export function createImage(mmHash: string, offset: number, length: number): ImageFeature {
  return {
    tensors: new Map(),
    mmHash,
    placeholder: { offset, length, isEmbed: null },
  };
}

/** A runner's report if every sequence that samples gets the same token. Marks images as encoded. */
export function resultsOf(scheduled: SchedulerOutput, tokenId = 7, encoderCache?: EncoderCache): StepResults {
  const results = new Map<Sequence, StepResult>();
  const sampled: StepResult = { kind: "sampled", tokenId, logprobs: null, promptLogprobs: null };
  for (const chunk of scheduled.prefills) {
    for (const { mmHash } of chunk.imagesToEncode) encoderCache?.store(mmHash, new Float32Array(1));
    if (isLastChunk(chunk)) results.set(chunk.sequence, sampled);
  }
  for (const sequence of scheduled.decodes) results.set(sequence, sampled);
  return results;
}

/** Schedules a step, gives each sequence that computes its prompt to the end a token, and describes what was scheduled. */
export function step({ scheduler, encoderCache }: SchedulerParts, tokenId = 7): string[] {
  const scheduled = scheduler.schedule();
  const description = describeStep(scheduled);
  scheduler.update(scheduled, resultsOf(scheduled, tokenId, encoderCache));
  return description;
}

/** `requestId: tokens` of every sequence in a step. */
export function describeStep({ decodes, prefills }: SchedulerOutput): string[] {
  return [
    ...decodes.map(({ requestId }) => `${requestId}: 1`),
    ...prefills.map(({ sequence, numTokens }) => `${sequence.requestId}: ${numTokens}`),
  ];
}
