/** The memory of the KV slots, and views of it that the decoder's past and present are bound to. */
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { SlotRange } from "./kv-slots.ts";
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
