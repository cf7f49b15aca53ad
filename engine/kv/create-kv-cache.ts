/** Chooses how the slots lie in memory. */
import { EngineError, invariant } from "../contract/errors.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { DeviceKvCache, HostKvCache, SharedHostKvCache } from "./contiguous-kv-cache.ts";
import { GroupedKvCache, planGroupSize } from "./grouped-kv-cache.ts";
import type { KvCache, KvCacheShape, KvSession } from "./kv-cache.ts";
import { allocateLayers, slotShape } from "./kv-tensors.ts";
import { planKvCache, requireRoomForKv } from "./memory-plan.ts";
import type { KvShape } from "./memory-plan.ts";
import type { SlotBlockPlan } from "./plan-slot-blocks.ts";
import { SeparateKvCache } from "./separate-kv-cache.ts";

/**
 * Throws EngineError `invalid_configuration` when the machine lacks the memory, or it cannot be reserved.
 *
 * @param blocks Of slots that share the host's memory. Default: there must be memory for all slots.
 */
export function createKvCache(
  session: KvSession,
  decoder: KvShape,
  shape: KvCacheShape,
  blocks: SlotBlockPlan | null = null,
): KvCache {
  const { numSlots, maxLen } = shape;
  const { deviceMemory } = session;
  invariant(blocks === null || deviceMemory === null, "slots of a device share no memory");
  const mustFit = deviceMemory === null && blocks === null;
  if (mustFit) requireRoomForKv(planKvCache(decoder, shape), shape, machineMemoryBytes());
  try {
    if (blocks !== null) return new SharedHostKvCache(decoder, blocks);
    if (deviceMemory === null)
      return new HostKvCache(allocateLayers(session, decoder, (layer) => slotShape(layer, numSlots, maxLen)));
    return deviceMemory.hasViews
      ? new DeviceKvCache(session, decoder, shape)
      : createBufferKvCache(session, decoder, shape);
  } catch (cause) {
    throw new EngineError(
      "invalid_configuration",
      `The KV cache of ${numSlots} sequences of ${maxLen} tokens does not fit into memory.`,
      { cause, setting: "maxNumSequences" },
    );
  }
}

function createBufferKvCache(session: KvSession, decoder: KvShape, shape: KvCacheShape): KvCache {
  const groupSize = planGroupSize(decoder, shape);
  return groupSize === 1
    ? new SeparateKvCache(session, decoder, shape)
    : new GroupedKvCache(session, decoder, shape, groupSize);
}
