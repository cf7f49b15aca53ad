/** The compiled passes of a draw and the memory they work in. */
import { readFileSync } from "node:fs";
import { numSteps } from "./exponential.ts";

/** What kernel/draw.wasm exports, as kernel/draw.ts explains it: addresses in `memory`. */
interface DrawExports {
  readonly memory: WebAssembly.Memory;
  maximum(row: number, numTokens: number): number;
  fillBuckets(row: number, numTokens: number, scale: number, largest: number, buckets: number, masses: number): void;
}

/** A token beyond the last one has less than 1e-13 of the probability of the most likely one: it is never drawn. */
export const numBuckets = numSteps;
/** Numbers after the buckets, for tokens that cannot be drawn. */
export const numOutside = 8;

const pageBytes = 1 << 16;

/** Mutable scratch memory for one row at a time. */
export class DrawKernel {
  /** [vocabSize]: the row that the passes go over. */
  readonly row: Float32Array;
  /** [vocabSize]: filled by `fillBuckets`; a number of `numBuckets` or more is no bucket. */
  readonly bucketOf: Uint16Array;
  /** [numBuckets]: filled by `fillBuckets`. */
  readonly masses: Float64Array;
  readonly #exports: DrawExports;
  readonly #numPadded: number;
  readonly #rowAddress: number;
  readonly #bucketsAddress: number;
  readonly #massesAddress = 0;

  constructor(vocabSize: number) {
    const module = new WebAssembly.Module(readFileSync(new URL("./kernel/draw.wasm", import.meta.url)));
    this.#exports = new WebAssembly.Instance(module).exports as DrawExports;
    const { memory } = this.#exports;
    this.#numPadded = Math.ceil(vocabSize / 8) * 8;
    this.#rowAddress = this.#massesAddress + (numBuckets + numOutside) * Float64Array.BYTES_PER_ELEMENT;
    this.#bucketsAddress = this.#rowAddress + this.#numPadded * Float32Array.BYTES_PER_ELEMENT;
    const numBytes = this.#bucketsAddress + this.#numPadded * Uint16Array.BYTES_PER_ELEMENT;
    memory.grow(Math.max(0, Math.ceil((numBytes - memory.buffer.byteLength) / pageBytes)));
    const { buffer } = memory;
    this.masses = new Float64Array(buffer, this.#massesAddress, numBuckets);
    this.row = new Float32Array(buffer, this.#rowAddress, vocabSize);
    this.bucketOf = new Uint16Array(buffer, this.#bucketsAddress, vocabSize);
    new Float32Array(buffer, this.#rowAddress, this.#numPadded).fill(NaN, vocabSize);
  }

  /** Of `row`; -Infinity when every value is that or NaN. */
  maximum(): number {
    return this.#exports.maximum(this.#rowAddress, this.#numPadded);
  }

  /** @param scale a float32, as is `largest`, the largest value of `row` times `scale`. */
  fillBuckets(scale: number, largest: number): void {
    const addresses = [this.#bucketsAddress, this.#massesAddress] as const;
    this.#exports.fillBuckets(this.#rowAddress, this.#numPadded, scale, largest, ...addresses);
  }
}
