/** The memory of the KV slots, and views of it that the decoder's past and present are bound to. */
import { EngineError } from "../contract/errors.ts";
import { allocateLayers, disposeAll, splitLayers } from "./kv-tensors.ts";
import { planKvCache, requireRoomForKv } from "./memory-plan.ts";
import type { KvShape } from "./memory-plan.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { SlotTransfer } from "./slot-transfer.ts";

/** Keys and values of a part of the cache, layer by layer. Of slots: [numSlots, numKvHeads, maxLen, headDim] each. */
export interface KvView extends Disposable {
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

export interface KvCache extends Disposable {
  /** Most neighbouring slots that one run can see as one batch. */
  readonly maxSlotsPerRun: number;
  /** Reserved for all slots; on the host only what is touched is committed. */
  readonly byteLength: number;
  /** A view of `numSlots` slots from `firstSlot` on; the caller disposes of it, and of the cache only afterwards. */
  view(firstSlot: number, numSlots: number): KvView;
  /** Null where memory is not reached in parts. */
  readonly transfer: ((transfer: SlotTransfer) => void) | null;
}

export interface KvCacheShape {
  readonly numSlots: number;
  readonly maxLen: number;
}

/** Throws EngineError `invalid_configuration` when the machine lacks the memory, or it cannot be reserved. */
export function createKvCache(session: Session, decoder: KvShape, shape: KvCacheShape): KvCache {
  const { numSlots, maxLen } = shape;
  if (session.deviceMemory === null) requireRoomForKv(planKvCache(decoder, shape), shape, machineMemoryBytes());
  try {
    return session.deviceMemory === null
      ? new HostKvCache(session, decoder, shape)
      : new DeviceKvCache(session, decoder, shape);
  } catch (cause) {
    throw new EngineError(
      "invalid_configuration",
      `The KV cache of ${numSlots} sequences of ${maxLen} tokens does not fit into memory.`,
      { cause },
    );
  }
}

/** All slots of a layer lie in one array, so any range of neighbours is a batch of its own without a copy. */
class HostKvCache implements KvCache {
  readonly maxSlotsPerRun: number;
  readonly byteLength: number;
  /** Keys, then values, by layer: [numSlots, numKvHeads, maxLen, headDim]. */
  readonly #tensors: readonly Tensor[];

  constructor(session: Session, decoder: KvShape, { numSlots, maxLen }: KvCacheShape) {
    this.maxSlotsPerRun = numSlots;
    this.#tensors = allocateLayers(session, decoder, slotShape(decoder, numSlots, maxLen));
    this.byteLength = totalBytes(this.#tensors);
  }

  view(firstSlot: number, numSlots: number): KvView {
    const views = this.#tensors.map(({ elementType, shape, data }) => {
      const slotLength = data.length / shape[0];
      const slots = data.subarray(firstSlot * slotLength, (firstSlot + numSlots) * slotLength);
      return Tensor.fromTypedArray(elementType, slots, [numSlots, ...shape.slice(1)]);
    });
    return { ...splitLayers(views), [Symbol.dispose]: () => disposeAll(views) };
  }

  /** A token has far fewer bytes here than the weights that computing it reads. */
  transfer(transfer: SlotTransfer): void {
    for (const { data, shape } of this.#tensors) {
      const [, numKvHeads, maxLen, headDim] = shape;
      for (let head = 0; head < numKvHeads; head++) {
        const offsetOf = (slot: number): number => (slot * numKvHeads + head) * maxLen * headDim;
        if (transfer.kind === "copy") {
          const from = offsetOf(transfer.fromSlot);
          data.copyWithin(offsetOf(transfer.toSlot), from, from + transfer.numTokens * headDim);
        } else {
          const [first, second] = transfer.slots.map(offsetOf);
          const [numFirst, numSecond] = transfer.numTokens;
          const kept = data.slice(first, first + numFirst * headDim);
          data.copyWithin(first, second, second + numSecond * headDim);
          (data as Float32Array).set(kept as Float32Array, second);
        }
      }
    }
  }

  [Symbol.dispose](): void {
    disposeAll(this.#tensors);
  }
}

/**
 * On a device a tensor cannot be a part of another, so each slot has tensors of its own and is run by itself. The
 * paged form, which runs any set of sequences at once there, takes this class's place when it comes.
 */
class DeviceKvCache implements KvCache {
  readonly maxSlotsPerRun = 1;
  /** A whole slot over the host and back would often cost more than computing the prefix. */
  readonly transfer = null;
  readonly byteLength: number;
  /** By slot: keys, then values, by layer: [1, numKvHeads, maxLen, headDim]. */
  readonly #slots: readonly (readonly Tensor[])[];

  constructor(session: Session, decoder: KvShape, { numSlots, maxLen }: KvCacheShape) {
    this.#slots = Array.from({ length: numSlots }, () =>
      allocateLayers(session, decoder, slotShape(decoder, 1, maxLen)),
    );
    this.byteLength = totalBytes(this.#slots.flat());
  }

  view(firstSlot: number): KvView {
    return { ...splitLayers(this.#slots[firstSlot]), [Symbol.dispose]: () => undefined };
  }

  [Symbol.dispose](): void {
    for (const tensors of this.#slots) disposeAll(tensors);
  }
}

function slotShape({ numKvHeads, headDim }: KvShape, numSlots: number, maxLen: number): readonly number[] {
  return [numSlots, numKvHeads, maxLen, headDim];
}

function totalBytes(tensors: readonly Tensor[]): number {
  return tensors.reduce((total, { byteLength }) => total + byteLength, 0);
}
