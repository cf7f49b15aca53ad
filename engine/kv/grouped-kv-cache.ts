/**
 * KV slots on a device whose tensors are handles of buffers (WebGPU). A tensor there can be a view only of the first
 * elements of another, and attention computes several tokens of a sequence only where the sequence is a batch of its
 * own. Neighbouring slots therefore form groups: a group lies in one buffer per layer and decodes as one batch of its
 * first slots, and a single slot that is not the first of its group is computed in the window, a slot beside them.
 */
import { invariant } from "../contract/errors.ts";
import { bytesPerElement } from "../runtime/element-type.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { KvCache, KvCacheShape, KvSession, KvView, RunSpan } from "./kv-cache.ts";
import type { SlotRange } from "./kv-slots.ts";
import { allocateLayers, disposeAll, largestSlot, slotShape, splitLayers, totalBytes } from "./kv-tensors.ts";
import type { KvShape } from "./memory-plan.ts";
import { SlotMover } from "./slot-mover.ts";
import type { SlotPlace } from "./slot-mover.ts";
import type { KvTransfer } from "./slot-transfer.ts";

/** Every adapter binds a buffer of this size to a kernel: the default of WebGPU's `maxStorageBufferBindingSize`. */
const MAX_GROUP_BYTES = 2 ** 27;

/** Slots of a group: as many as a buffer of `maxGroupBytes` holds, but at least one, in groups of about equal size. */
export function planGroupSize(decoder: KvShape, { numSlots, maxLen }: KvCacheShape, maxGroupBytes = MAX_GROUP_BYTES) {
  const slotBytes = largestSlot(decoder, maxLen) * bytesPerElement(decoder.kvElementType);
  const largest = Math.max(1, Math.floor(maxGroupBytes / slotBytes));
  return Math.ceil(numSlots / Math.ceil(numSlots / largest));
}

/** The slot whose newest tokens lie in the window. */
interface WindowContents {
  readonly slot: number;
  /** At most these tokens are of use. */
  readonly numTokens: number;
}

/** Mutable. */
export class GroupedKvCache implements KvCache {
  readonly release = null;
  readonly maxSlotsPerRun: number;
  readonly byteLength: number;
  readonly #numSlots: number;
  /** By group: keys, then values, by layer: [slots of the group, numKvHeads, maxLen, headDim]. */
  readonly #groups: readonly (readonly Tensor[])[];
  /** As a group of one slot. */
  readonly #window: readonly Tensor[];
  readonly #mover: SlotMover;
  #contents: WindowContents | null = null;
  /** The slot that decodes in the window in this step. */
  #windowSlot: number | null = null;

  /** @throws EngineError `runtime_failed` if a buffer cannot be allocated. */
  constructor(session: KvSession, decoder: KvShape, { numSlots, maxLen }: KvCacheShape, groupSize: number) {
    const { deviceMemory } = session;
    invariant(deviceMemory !== null, "slots on the host need no groups");
    this.maxSlotsPerRun = groupSize;
    this.#numSlots = numSlots;
    using allocated = new DisposableStack();
    const allocate = (size: number): readonly Tensor[] => {
      const tensors = allocateLayers(session, decoder, (layer) => slotShape(layer, size, maxLen));
      allocated.defer(() => disposeAll(tensors));
      return tensors;
    };
    this.#mover = allocated.use(new SlotMover(decoder, deviceMemory.device, { deviceId: 0 }));
    this.#window = allocate(1);
    this.#groups = Array.from({ length: Math.ceil(numSlots / groupSize) }, (_, group) =>
      allocate(Math.min(groupSize, numSlots - group * groupSize)),
    );
    this.byteLength = totalBytes([...this.#window, ...this.#groups.flat()]);
    allocated.move();
  }

  /**
   * A slot that decodes alone in its group runs in the window, if it is there already or no prompt needs the window.
   */
  planRanges(slots: readonly number[], hasPrompts: boolean): SlotRange[] {
    const groups = Map.groupBy(slots, (slot) => this.#groupOf(slot));
    const alone = [...groups.values()].flatMap((members) => (members.length === 1 ? members : []));
    const candidates = alone.filter((slot) => !this.#isFirst(slot));
    const isThere = candidates.find((slot) => slot === this.#contents?.slot);
    this.#windowSlot = isThere ?? (hasPrompts ? null : (candidates[0] ?? null));
    return [...groups.values()].map((members) => this.rangeOf(members[0]!, members.at(-1)!));
  }

  rangeOf(lowest: number, highest: number): SlotRange {
    if (lowest === highest && lowest === this.#windowSlot) return { firstSlot: lowest, numSlots: 1 };
    const firstSlot = this.#groupOf(lowest) * this.maxSlotsPerRun;
    return { firstSlot, numSlots: highest - firstSlot + 1 };
  }

  prepare({ firstSlot, numSlots }: SlotRange, { firstToken, endToken }: RunSpan): void {
    const slot = this.#contents?.slot;
    if (numSlots > 1 || this.#isFirst(firstSlot)) {
      if (slot !== undefined && slot >= firstSlot && slot < firstSlot + numSlots) this.#emptyWindow();
      return;
    }
    if (slot !== firstSlot) {
      this.#emptyWindow();
      this.#mover.move(this.#placeOf(firstSlot), this.#windowPlace, firstToken);
    }
    this.#contents = { slot: firstSlot, numTokens: endToken };
  }

  view(firstSlot: number, numSlots: number): KvView {
    if (numSlots === 1 && !this.#isFirst(firstSlot)) {
      return { ...splitLayers(this.#window), [Symbol.dispose]: () => undefined };
    }
    invariant(this.#isFirst(firstSlot), `a batch begins at KV slot ${firstSlot}, within a group`);
    const views = this.#groups[this.#groupOf(firstSlot)]!.map((tensor) =>
      tensor.view(0, [numSlots, ...tensor.shape.slice(1)]),
    );
    return { ...splitLayers(views), [Symbol.dispose]: () => disposeAll(views) };
  }

  readonly transfer = (transfer: KvTransfer): void => {
    if (transfer.kind === "copy") {
      if (this.#contents?.slot === transfer.fromSlot) this.#emptyWindow();
      if (this.#contents?.slot === transfer.toSlot) this.#contents = null;
      this.#mover.move(this.#placeOf(transfer.fromSlot), this.#placeOf(transfer.toSlot), transfer.numTokens);
      return;
    }
    this.#emptyWindow();
    const [firstSlot, secondSlot] = transfer.slots;
    const [first, second] = [this.#placeOf(firstSlot), this.#placeOf(secondSlot)];
    const [numFirst, numSecond] = transfer.numTokens;
    if (numSecond === 0) return this.#mover.move(first, second, numFirst);
    this.#mover.move(first, this.#windowPlace, numFirst);
    this.#mover.move(second, first, numSecond);
    this.#mover.move(this.#windowPlace, second, numFirst);
  };

  [Symbol.dispose](): void {
    for (const tensors of [this.#window, ...this.#groups]) disposeAll(tensors);
    this.#mover[Symbol.dispose]();
  }

  get #windowPlace(): SlotPlace {
    return { tensors: this.#window, row: 0 };
  }

  #emptyWindow(): void {
    if (this.#contents === null) return;
    const { slot, numTokens } = this.#contents;
    this.#mover.move(this.#windowPlace, this.#placeOf(slot), numTokens);
    this.#contents = null;
  }

  #groupOf(slot: number): number {
    invariant(slot >= 0 && slot < this.#numSlots, `there is no KV slot ${slot}`);
    return Math.floor(slot / this.maxSlotsPerRun);
  }

  #isFirst(slot: number): boolean {
    return slot % this.maxSlotsPerRun === 0;
  }

  #placeOf(slot: number): SlotPlace {
    return { tensors: this.#groups[this.#groupOf(slot)]!, row: slot % this.maxSlotsPerRun };
  }
}
