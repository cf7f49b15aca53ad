/** The memory of the KV slots, and views of it that the decoder's past and present are bound to. */
import { EngineError, invariant } from "../contract/errors.ts";
import { kvWidths } from "../models/kv-heads.ts";
import { bytesPerElement, numElements } from "../runtime/element-type.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { allocatePages, releasePages } from "../runtime/page-memory.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";
import { GroupedKvCache, planGroupSize } from "./grouped-kv-cache.ts";
import { coverSlots } from "./kv-slots.ts";
import type { SlotRange } from "./kv-slots.ts";
import { allocateLayers, disposeAll, largestSlot, slotShape, splitLayers, totalBytes } from "./kv-tensors.ts";
import { planKvCache, requireRoomForKv } from "./memory-plan.ts";
import type { KvShape } from "./memory-plan.ts";
import type { SlotBlockPlan } from "./plan-slot-blocks.ts";
import type { KvTransfer } from "./slot-transfer.ts";

/** Keys and values of a part of the cache, layer by layer. Of slots: [numSlots, numKvHeads, maxLen, headDim] each. */
export interface KvView extends Disposable {
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

/** The tokens of a run's only sequence: it has `firstToken` in its slot, and `endToken` after the run. */
export interface RunSpan {
  readonly firstToken: number;
  readonly endToken: number;
}

export interface KvCache extends Disposable {
  /** Most neighbouring slots that one run can see as one batch. */
  readonly maxSlotsPerRun: number;
  /** Reserved for all slots; on the host only what is touched is committed. */
  readonly byteLength: number;
  /**
   * Ranges that cover the slots that decode in a step (ascending), in ascending order; each is one run.
   *
   * @param hasPrompts Whether the step computes chunks of prompts as well.
   */
  planRanges(slots: readonly number[], hasPrompts: boolean): SlotRange[];
  /** The range to run in which these slots of one planned range decode, and what lies between them. */
  rangeOf(lowest: number, highest: number): SlotRange;
  /** Brings the tokens of the range to where its view shows them. Call it before each run. */
  prepare(range: SlotRange, span: RunSpan): void;
  /** A view of `numSlots` slots from `firstSlot` on; the caller disposes of it, and of the cache only afterwards. */
  view(firstSlot: number, numSlots: number): KvView;
  /** Null where memory is not reached in parts. */
  readonly transfer: ((transfer: KvTransfer) => void) | null;
  /** Gives the memory of a slot's blocks from `firstBlock` on back to the system. Null where slots do not share memory. */
  readonly release: ((slot: number, firstBlock: number) => void) | null;
}

export interface KvCacheShape {
  readonly numSlots: number;
  readonly maxLen: number;
}

/** The part of a session that allocates the cache. */
export type KvSession = Pick<Session, "allocateTensor" | "deviceMemory">;

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

/** All slots of a layer lie in one allocation, so any range of neighbours is a batch of its own without a copy. */
abstract class ContiguousKvCache implements KvCache {
  abstract readonly maxSlotsPerRun: number;
  abstract readonly transfer: KvCache["transfer"];
  readonly release: KvCache["release"] = null;
  readonly byteLength: number;
  /** Keys, then values, by layer: [numSlots, numKvHeads, maxLen, headDim]. */
  protected readonly tensors: readonly Tensor[];

  /** Takes ownership of the tensors. */
  constructor(tensors: readonly Tensor[]) {
    this.tensors = tensors;
    this.byteLength = totalBytes(tensors);
  }

  planRanges(slots: readonly number[]): SlotRange[] {
    return coverSlots(slots, this.maxSlotsPerRun);
  }

  rangeOf(lowest: number, highest: number): SlotRange {
    return { firstSlot: lowest, numSlots: highest - lowest + 1 };
  }

  prepare(): void {}

  view(firstSlot: number, numSlots: number): KvView {
    const views = this.tensors.map((tensor) => {
      const [, ...slot] = tensor.shape;
      return tensor.view(firstSlot * numElements(slot), [numSlots, ...slot]);
    });
    return { ...splitLayers(views), [Symbol.dispose]: () => disposeAll(views) };
  }

  [Symbol.dispose](): void {
    disposeAll(this.tensors);
  }
}

class HostKvCache extends ContiguousKvCache {
  readonly maxSlotsPerRun: number;

  constructor(tensors: readonly Tensor[]) {
    super(tensors);
    this.maxSlotsPerRun = tensors[0]?.shape[0] ?? 1;
  }

  /** A token has far fewer bytes here than the weights that computing it reads. */
  readonly transfer = (transfer: KvTransfer): void => {
    for (const { data, shape } of this.tensors) {
      const [, numKvHeads, maxLen, headDim] = shape as readonly [number, number, number, number];
      for (let head = 0; head < numKvHeads; head++) {
        const offsetOf = (slot: number): number => (slot * numKvHeads + head) * maxLen * headDim;
        if (transfer.kind === "copy") {
          const from = offsetOf(transfer.fromSlot);
          data.copyWithin(offsetOf(transfer.toSlot), from, from + transfer.numTokens * headDim);
        } else {
          const [first, second] = [offsetOf(transfer.slots[0]), offsetOf(transfer.slots[1])];
          const [numFirst, numSecond] = transfer.numTokens;
          const kept = data.slice(first, first + numFirst * headDim);
          data.copyWithin(first, second, second + numSecond * headDim);
          (data as Float32Array).set(kept as Float32Array, second);
        }
      }
    }
  };
}

/** Slots that share the memory of the host: only blocks that hold tokens have pages. See `SlotBlocks`. */
class SharedHostKvCache extends HostKvCache {
  override readonly release: (slot: number, firstBlock: number) => void;

  constructor(decoder: KvShape, { numSlots, slotLength, headBytes, pageBytes }: SlotBlockPlan) {
    super(
      allocateLayers({ allocateTensor: allocatePages }, decoder, (layer) => slotShape(layer, numSlots, slotLength)),
    );
    const rowBytes = slotLength * headBytes;
    this.release = (slot, firstBlock) => {
      const firstByte = firstBlock * pageBytes;
      for (const tensor of this.tensors) {
        const numKvHeads = tensor.shape[1]!;
        for (let head = 0; head < numKvHeads; head++) {
          const row = (slot * numKvHeads + head) * rowBytes;
          releasePages(tensor, row + firstByte, rowBytes - firstByte);
        }
      }
    };
  }
}

/** On a device whose tensors may lie within others. */
class DeviceKvCache extends ContiguousKvCache {
  readonly maxSlotsPerRun: number;
  /** A whole slot over the host and back would often cost more than computing the prefix. */
  readonly transfer = null;

  constructor(session: KvSession, decoder: KvShape, { numSlots, maxLen }: KvCacheShape) {
    const alignedLen = alignedSlotLength(decoder, maxLen);
    super(allocateLayers(session, decoder, (layer) => slotShape(layer, numSlots, alignedLen)));
    const slotElements = largestSlot(decoder, alignedLen);
    this.maxSlotsPerRun = Math.max(1, Math.min(numSlots, Math.floor(MAX_RUN_ELEMENTS / slotElements)));
  }
}

/** On a device whose tensors are handles of buffers that hold one slot: each slot is run by itself. */
class SeparateKvCache implements KvCache {
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

/** Kernels of ONNX Runtime's CUDA provider may count the elements of a run's cache in 32 bits. */
const MAX_RUN_ELEMENTS = 2 ** 31 - 1;

/** Every slot is aligned like an allocation: kernels load up to 16 bytes at once, and may copy in larger pieces. */
const SLOT_ALIGNMENT_BYTES = 256;

/** The shortest length, of at least `maxLen` tokens, whose slots are all aligned in every layer. */
function alignedSlotLength(decoder: KvShape, maxLen: number): number {
  const elementBytes = bytesPerElement(decoder.kvElementType);
  const tokenBytes = kvWidths(decoder).map((width) => width * elementBytes);
  let length = maxLen;
  while (tokenBytes.some((bytes) => (length * bytes) % SLOT_ALIGNMENT_BYTES !== 0)) length += 1;
  return length;
}
