/**
 * Keys and values of the KV slots for decoders that read a past and write a present: what a slot keeps lies together,
 * as long as it is, and each run writes all of it anew.
 *
 * A run reads the slot's buffers and writes into a spare set; then the two change roles. So no tensor is made by ONNX
 * Runtime, nothing is copied beside what the run itself copies, and memory is that of one slot more than there are. It is
 * the host's on every device: runs on others bring a past over and its present back.
 */
import { invariant } from "../contract/errors.ts";
import { planKvCache, requireRoomForKv } from "./memory-plan.ts";
import type { DecoderExport, KvElementType } from "../models/built-model.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { KvSlots } from "./kv-slots.ts";
import type { SlotTransfer } from "./slot-transfer.ts";

export type PastNumbers = Float32Array | Float16Array;

/** By layer a key and a value, each with room for [numKvHeads, maxLen, headDim], of which memory takes what is touched. */
type BufferSet = readonly PastNumbers[];

/** Zeros, of which memory takes what is touched. */
export function createPastNumbers(elementType: KvElementType, length: number): PastNumbers {
  return elementType === "float32" ? new Float32Array(length) : new Float16Array(length);
}

/** Mutable. */
export class PastSlots {
  readonly numSlots: number;
  /** Positions of one slot. */
  readonly maxLen: number;
  readonly #graph: DecoderExport;
  readonly #sets: BufferSet[];
  #spare: BufferSet;
  /** By slot: tokens that lie in its buffers. */
  readonly #lengths: Int32Array;

  /** Throws EngineError `invalid_configuration` when the machine lacks the memory. */
  constructor(graph: DecoderExport, { numSlots, maxLen }: Pick<KvSlots, "numSlots" | "maxLen">) {
    const shape = { numSlots, maxLen };
    this.numSlots = numSlots;
    this.maxLen = maxLen;
    requireRoomForKv(planKvCache(graph, shape), shape, machineMemoryBytes());
    this.#graph = graph;
    this.#lengths = new Int32Array(numSlots);
    const { numLayers, numKvHeads, headDim, kvElementType } = graph;
    const createSet = (): BufferSet =>
      Array.from({ length: 2 * numLayers }, () => createPastNumbers(kvElementType, numKvHeads * maxLen * headDim));
    this.#sets = Array.from({ length: numSlots }, createSet);
    this.#spare = createSet();
  }

  lengthOf(slot: number): number {
    return this.#lengths[slot];
  }

  /** The slot's live key or value of a layer, [numKvHeads, numTokens, headDim] in front; 2 * layer is the key. */
  buffer(slot: number, index: number): PastNumbers {
    return this.#sets[slot][index];
  }

  /** For who has written that many tokens into the slot's buffers. */
  setLength(slot: number, numTokens: number): void {
    this.#lengths[slot] = numTokens;
  }

  /** What the slot keeps, as tensors of [1, numKvHeads, numTokens, headDim]: by layer a key and a value. */
  past(slot: number): Tensor[] {
    return this.#tensorsOver(this.#sets[slot], this.#lengths[slot]);
  }

  /** Where a run writes a present of `numTokens`; `keepPresent` makes it the slot's past. */
  present(numTokens: number): Tensor[] {
    return this.#tensorsOver(this.#spare, numTokens);
  }

  /** The present written last, of `numTokens`, is the slot's past from now on. */
  keepPresent(slot: number, numTokens: number): void {
    const written = this.#spare;
    this.#spare = this.#sets[slot];
    this.#sets[slot] = written;
    this.#lengths[slot] = numTokens;
  }

  /** Drops all but the first tokens. */
  truncate(slot: number, numTokens: number): void {
    const length = this.#lengths[slot];
    invariant(numTokens <= length, `${numTokens} tokens are wanted of a KV slot that has ${length}`);
    if (numTokens === length) return;
    for (const buffer of this.#sets[slot]) this.#copyHeads(buffer, length, buffer, numTokens);
    this.#lengths[slot] = numTokens;
  }

  transfer(transfer: SlotTransfer): void {
    switch (transfer.kind) {
      case "copy": {
        const { fromSlot, toSlot, numTokens } = transfer;
        this.#sets[fromSlot].forEach((buffer, index) => {
          this.#copyHeads(buffer, this.#lengths[fromSlot], this.#sets[toSlot][index], numTokens);
        });
        this.#lengths[toSlot] = numTokens;
        return;
      }
      case "swap": {
        const [first, second] = transfer.slots;
        [this.#sets[first], this.#sets[second]] = [this.#sets[second], this.#sets[first]];
        [this.#lengths[first], this.#lengths[second]] = [this.#lengths[second], this.#lengths[first]];
        return;
      }
      default:
        transfer satisfies never;
    }
  }

  #tensorsOver(buffers: BufferSet, numTokens: number): Tensor[] {
    const { numKvHeads, headDim, kvElementType } = this.#graph;
    const shape = [1, numKvHeads, numTokens, headDim];
    const length = numKvHeads * numTokens * headDim;
    return buffers.map((buffer) => Tensor.fromTypedArray(kvElementType, buffer.subarray(0, length), shape));
  }

  /** The first `numTokens` of each head; in one buffer every head moves down, behind the one before. */
  #copyHeads(from: PastNumbers, length: number, to: PastNumbers, numTokens: number): void {
    const { numKvHeads, headDim } = this.#graph;
    const size = numTokens * headDim;
    for (let head = 0; head < numKvHeads; head++) {
      const start = head * length * headDim;
      if (from === to) to.copyWithin(head * size, start, start + size);
      else to.set(from.subarray(start, start + size), head * size);
    }
  }
}
