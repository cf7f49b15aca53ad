/** How many copies of the model an engine computes, and what each of them has. */
import type { EngineConfig } from "../contract/config.ts";
import { ENOUGH_SEQUENCES } from "../contract/data-parallel.ts";
import { numSequencesThatFit } from "../kv/memory-plan.ts";
import type { KvShape } from "../kv/memory-plan.ts";
import { planSlotBlocksOf } from "../kv/plan-slot-blocks.ts";
import type { KvLayout } from "../models/built-model.ts";
import { memoryShareBytes } from "../runtime/machine-memory.ts";
import { numThreadsOf, numUsableCores } from "../runtime/usable-cores.ts";

/** Settings of each copy. */
export interface CopyConfig extends EngineConfig {
  readonly dataParallelSize: number;
  readonly numThreads: number;
}

/** One thread each. Copies were not measured with more cores. */
const NUM_COPIES = 2;

interface CopiedModel {
  readonly decoder: KvShape & {
    readonly weightBytes: number;
    /** Null or left out for an export. */
    readonly kvLayout?: KvLayout | null;
  };
  /** Tokens of the longest sequence. */
  readonly maxLen: number;
  /** Whether logits processors see the batch: each copy would have its own. */
  readonly hasCustomProcessors: boolean;
}

/**
 * As many copies as the settings say. If they leave it open: two on a CPU with two cores, which divide the limits among
 * themselves, if both have room for sequences of full length, and otherwise one.
 */
export function resolveCopies(config: EngineConfig, model: CopiedModel): CopyConfig {
  const { dataParallelSize: numCopies } = config;
  if (numCopies == null)
    return divided(config, model) ?? { ...config, dataParallelSize: 1, numThreads: numThreadsOf(config) };
  const numThreads = config.numThreads ?? Math.max(1, Math.floor(numUsableCores() / numCopies));
  return { ...config, dataParallelSize: numCopies, numThreads };
}

/** Null for one copy. */
function divided(config: EngineConfig, { decoder, maxLen, hasCustomProcessors }: CopiedModel): CopyConfig | null {
  const { device, visionDevice, projectorDevice, kvCacheMemoryBytes: maxKvBytes = null } = config;
  const onCpu = [device, visionDevice, projectorDevice].every((each) => each == null || each === "cpu");
  if (!onCpu || hasCustomProcessors) return null;
  if (decoder.form === "export" || decoder.kvLayout?.kind === "paged") return null;
  // Two may be asked for on a machine that has one core.
  if (numThreadsOf(config) !== NUM_COPIES || numUsableCores() < NUM_COPIES) return null;
  const maxNumSequences = config.maxNumSequences / NUM_COPIES;
  // Fewer are computed by one copy anyway.
  if (!Number.isInteger(maxNumSequences) || maxNumSequences < ENOUGH_SEQUENCES * NUM_COPIES) return null;
  const copy = {
    ...config,
    dataParallelSize: NUM_COPIES,
    numThreads: 1,
    maxNumSequences,
    kvCacheMemoryBytes: maxKvBytes === null ? null : maxKvBytes / NUM_COPIES,
  };
  return hasRoom(copy, decoder, maxLen) ? copy : null;
}

/** Whether every sequence of a copy has room for its full length. */
function hasRoom(copy: CopyConfig, decoder: CopiedModel["decoder"], maxLen: number): boolean {
  const { maxNumSequences, kvCacheMemoryBytes: maxKvBytes } = copy;
  const memory = { weightBytes: decoder.weightBytes, machineBytes: memoryShareBytes(copy, decoder), maxKvBytes };
  return (
    planSlotBlocksOf(copy, decoder, maxLen) === null &&
    numSequencesThatFit(decoder, { maxNumSequences, maxLen }, memory) === maxNumSequences
  );
}
