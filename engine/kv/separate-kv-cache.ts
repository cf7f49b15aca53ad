/** KV slots that each lie in buffers of their own. */
import type { Tensor } from "../runtime/tensor.ts";
import type { KvCache, KvCacheShape, KvSession, KvView } from "./kv-cache.ts";
import { coverSlots } from "./kv-slots.ts";
import type { SlotRange } from "./kv-slots.ts";
import { allocateLayers, disposeAll, slotShape, splitLayers, totalBytes } from "./kv-tensors.ts";
import type { KvShape } from "./memory-plan.ts";

/** On a device whose tensors are handles of buffers that hold one slot: each slot is run by itself. */
export class SeparateKvCache implements KvCache {
  readonly maxSlotsPerRun = 1;
  readonly transfer = null;
  readonly release = null;
  readonly byteLength: number;
  /** By slot: keys, then values, by layer: [1, numKvHeads, maxLen, headDim]. */
  readonly #slots: readonly (readonly Tensor[])[];

  constructor(session: KvSession, decoder: KvShape, { numSlots, maxLen }: KvCacheShape) {
    this.#slots = Array.from({ length: numSlots }, () =>
      allocateLayers(session, decoder, (layer) => slotShape(layer, 1, maxLen)),
    );
    this.byteLength = totalBytes(this.#slots.flat());
  }

  planRanges(slots: readonly number[]): SlotRange[] {
    return coverSlots(slots, this.maxSlotsPerRun);
  }

  rangeOf(slot: number): SlotRange {
    return { firstSlot: slot, numSlots: 1 };
  }

  prepare(): void {}

  view(firstSlot: number): KvView {
    return { ...splitLayers(this.#slots[firstSlot]!), [Symbol.dispose]: () => undefined };
  }

  [Symbol.dispose](): void {
    for (const tensors of this.#slots) disposeAll(tensors);
  }
}
