/**
 * Gathers the pasts of several KV slots, so that one run decodes all of them. Shorter pasts are padded, and the mask
 * excludes the padding. The tokens that the run adds are copied back to the slots.
 */
import type { DecoderExport } from "../models/built-model.ts";
import { Tensor } from "../runtime/tensor.ts";
import { planKvCache } from "./memory-plan.ts";
import { createPastNumbers, type PastNumbers } from "./past-numbers.ts";
import type { PastSlots } from "./past-slots.ts";

interface GatheredPast {
  /** Row-major [numSlots, longest + 1]. */
  readonly mask: BigInt64Array;
  /** A key and a value per layer, [numSlots, numKvHeads, longest, headDim]. The next call overwrites them. */
  readonly past: readonly Tensor[];
  /** The same with room for one more token. */
  readonly present: readonly Tensor[];
}

interface BatchBuffers {
  readonly past: readonly PastNumbers[];
  readonly present: readonly PastNumbers[];
}

/** Mutable. Its memory is allocated for the first batch and kept. */
export class PastBatch {
  readonly #graph: DecoderExport;
  readonly #pastSlots: PastSlots;
  /** For all slots together, including padding. */
  readonly #maxNumTokens: number;
  #buffers: BatchBuffers | null = null;

  constructor(graph: DecoderExport, pastSlots: PastSlots) {
    this.#graph = graph;
    this.#pastSlots = pastSlots;
    const { numSlots, maxLen } = pastSlots;
    const { bytesPerToken } = planKvCache(graph, { numSlots, maxLen });
    this.#maxNumTokens = Math.min(numSlots * maxLen, Math.floor(graph.weightBytes / bytesPerToken));
  }

  /** The number of leading slots that are worth one run: their pasts have fewer bytes than the weights. */
  numFitting(slots: readonly number[]): number {
    let longest = 0;
    for (let count = 1; count <= slots.length; count++) {
      longest = Math.max(longest, this.#pastSlots.lengthOf(slots[count - 1]!));
      if (count * longest > this.#maxNumTokens) return Math.max(count - 1, 1);
    }
    return slots.length;
  }

  gather(slots: readonly number[]): GatheredPast {
    const { numKvHeads, headDim, kvElementType, numLayers } = this.#graph;
    const { past, present } = (this.#buffers ??= this.#createBuffers());
    const lengths = slots.map((slot) => this.#pastSlots.lengthOf(slot));
    const longest = Math.max(...lengths);
    const tensorsOver = (buffers: readonly PastNumbers[], numTokens: number): Tensor[] => {
      const shape = [slots.length, numKvHeads, numTokens, headDim];
      const size = slots.length * numKvHeads * numTokens * headDim;
      return buffers.map((buffer) => Tensor.fromTypedArray(kvElementType, buffer.subarray(0, size), shape));
    };
    const isInFront = this.#graph.padding === "front";
    const numTotal = longest + 1;
    const mask = new BigInt64Array(slots.length * numTotal);
    for (let row = 0; row < slots.length; row++) {
      const padding = longest - lengths[row]!;
      const firstSeen = row * numTotal + (isInFront ? padding : 0);
      mask.fill(1n, firstSeen, firstSeen + lengths[row]! + 1);
      const size = lengths[row]! * headDim;
      for (let index = 0; index < 2 * numLayers; index++) {
        const from = this.#pastSlots.buffer(slots[row]!, index);
        for (let head = 0; head < numKvHeads; head++) {
          const start = (row * numKvHeads + head) * longest * headDim;
          // Old values may be NaN, which no mask can exclude.
          const paddingStart = start + (isInFront ? 0 : size);
          past[index]!.fill(0, paddingStart, paddingStart + padding * headDim);
          past[index]!.set(from.subarray(head * size, (head + 1) * size), start + (isInFront ? padding * headDim : 0));
        }
      }
    }
    return { mask, past: tensorsOver(past, longest), present: tensorsOver(present, numTotal) };
  }

  /** Call it after the run, with the slots that were gathered last: each keeps one more token. */
  scatter(slots: readonly number[]): void {
    const { numKvHeads, headDim, numLayers } = this.#graph;
    const { present } = this.#buffers!;
    const total = Math.max(...slots.map((slot) => this.#pastSlots.lengthOf(slot))) + 1;
    for (let row = 0; row < slots.length; row++) {
      const numTokens = this.#pastSlots.lengthOf(slots[row]!) + 1;
      const size = numTokens * headDim;
      const skipped = this.#graph.padding === "front" ? (total - numTokens) * headDim : 0;
      for (let index = 0; index < 2 * numLayers; index++) {
        const to = this.#pastSlots.buffer(slots[row]!, index);
        for (let head = 0; head < numKvHeads; head++) {
          const start = (row * numKvHeads + head) * total * headDim + skipped;
          to.set(present[index]!.subarray(start, start + size), head * size);
        }
      }
    }
    // Only now: the longest of them determined the padding of the others.
    for (const slot of slots) this.#pastSlots.setLength(slot, this.#pastSlots.lengthOf(slot) + 1);
  }

  #createBuffers(): BatchBuffers {
    const { numLayers, numKvHeads, headDim, kvElementType } = this.#graph;
    const create = (numTokens: number): PastNumbers[] =>
      Array.from({ length: 2 * numLayers }, () => createPastNumbers(kvElementType, numKvHeads * numTokens * headDim));
    const numSlots = this.#pastSlots.numSlots;
    return { past: create(this.#maxNumTokens), present: create(this.#maxNumTokens + numSlots) };
  }
}
