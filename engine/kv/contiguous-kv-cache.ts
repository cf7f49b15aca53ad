/** KV slots of which all lie in one allocation per layer. */
import { kvWidths } from "../models/decoder-shape.ts";
import { bytesPerElement, numElements } from "../runtime/element-type.ts";
import { allocatePages, releasePages } from "../runtime/page-memory.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { KvCache, KvCacheShape, KvSession, KvView } from "./kv-cache.ts";
import { coverSlots } from "./kv-slots.ts";
import type { SlotRange } from "./kv-slots.ts";
import { allocateLayers, disposeAll, largestSlot, slotShape, splitLayers, totalBytes } from "./kv-tensors.ts";
import type { KvShape } from "./memory-plan.ts";
import type { SlotBlockPlan } from "./plan-slot-blocks.ts";
import type { KvTransfer } from "./slot-transfer.ts";

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

export class HostKvCache extends ContiguousKvCache {
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
export class SharedHostKvCache extends HostKvCache {
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
export class DeviceKvCache extends ContiguousKvCache {
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
