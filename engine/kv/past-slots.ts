/**
 * Keys and values of the KV slots for decoders that read a past and write a present. The tokens of a slot are
 * contiguous, and each run writes all of them again.
 *
 * A run reads the slot's buffers and writes into a spare set; then the two swap roles. ONNX Runtime therefore allocates
 * no tensor, nothing is copied except by the run itself, and the memory is that of one extra slot. It is host memory on
 * every device: runs on other devices copy the past there and the present back.
 */
import { invariant } from "../contract/errors.ts";
import type { DecoderExport } from "../models/built-model.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { KvSlots } from "./kv-slots.ts";
import { planKvCache, requireRoomForKv } from "./memory-plan.ts";
import { createPastNumbers, type PastNumbers } from "./past-numbers.ts";
import type { KvTransfer } from "./slot-transfer.ts";

/** A key and a value per layer, each with room for [numKvHeads, maxLen, headDim]. Only touched pages take memory. */
type BufferSet = readonly PastNumbers[];

/** Mutable. */
export class PastSlots {
  readonly numSlots: number;
  /** Positions of one slot. */
  readonly maxLen: number;
  readonly #graph: DecoderExport;
  readonly #sets: BufferSet[];
  #spare: BufferSet;
  /** By slot: number of tokens in its buffers. */
  readonly #lengths: Int32Array;

  /** Throws EngineError `invalid_configuration` if the machine lacks the memory. */
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
    return this.#lengths[slot]!;
  }

  /**
   * The slot's current key or value of a layer, [numKvHeads, numTokens, headDim] at the front. Index 2 * layer is the
   * key.
   */
  buffer(slot: number, index: number): PastNumbers {
    return this.#sets[slot]![index]!;
  }

  /** Call it after writing that many tokens into the slot's buffers. */
  setLength(slot: number, numTokens: number): void {
    this.#lengths[slot] = numTokens;
  }

  /** The slot's tokens as tensors [1, numKvHeads, numTokens, headDim]: a key and a value per layer. */
  past(slot: number): Tensor[] {
    return this.#tensorsOver(this.#sets[slot]!, this.#lengths[slot]!);
  }

  /** The tensors into which a run writes a present of `numTokens`. `keepPresent` makes it the slot's past. */
  present(numTokens: number): Tensor[] {
    return this.#tensorsOver(this.#spare, numTokens);
  }

  /** Makes the present that was written last, of `numTokens`, the slot's past. */
  keepPresent(slot: number, numTokens: number): void {
    const written = this.#spare;
    this.#spare = this.#sets[slot]!;
    this.#sets[slot] = written;
    this.#lengths[slot] = numTokens;
  }

  /** Drops all tokens except the first `numTokens`. */
  truncate(slot: number, numTokens: number): void {
    const length = this.#lengths[slot]!;
    invariant(numTokens <= length, `${numTokens} tokens are needed from a KV slot that has ${length}`);
    if (numTokens === length) return;
    for (const buffer of this.#sets[slot]!) this.#copyHeads(buffer, length, buffer, numTokens);
    this.#lengths[slot] = numTokens;
  }

  transfer(transfer: KvTransfer): void {
    switch (transfer.kind) {
      case "copy": {
        const { fromSlot, toSlot, numTokens } = transfer;
        this.#sets[fromSlot]!.forEach((buffer, index) => {
          this.#copyHeads(buffer, this.#lengths[fromSlot]!, this.#sets[toSlot]![index]!, numTokens);
        });
        this.#lengths[toSlot] = numTokens;
        return;
      }
      case "swap": {
        const [first, second] = transfer.slots;
        [this.#sets[first], this.#sets[second]] = [this.#sets[second]!, this.#sets[first]!];
        [this.#lengths[first], this.#lengths[second]] = [this.#lengths[second]!, this.#lengths[first]!];
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

  /** Copies the first `numTokens` of each head. Within one buffer, every head moves down behind the one before. */
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
