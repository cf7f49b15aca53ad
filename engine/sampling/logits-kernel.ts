/** The compiled passes over rows of logits, and the memory of the rows. */
import { readFileSync } from "node:fs";

import { EngineError } from "../contract/errors.ts";
import { NUM_STEPS } from "./draw/exponential.ts";

/** Exports of kernel/logits.wasm, described in kernel/logits.ts: addresses in `memory`. */
interface LogitsExports {
  readonly memory: WebAssembly.Memory;
  maximum(row: number, numTokens: number): number;
  argmax(row: number, numTokens: number): number;
  fillBuckets(row: number, numTokens: number, scale: number, largest: number, buckets: number, masses: number): void;
}

/** A token beyond the last bucket has less than 1e-13 of the probability of the most likely one and is never drawn. */
export const NUM_BUCKETS = NUM_STEPS;
/** Additional entries for tokens that cannot be drawn. */
export const NUM_OUTSIDE = 8;

const PAGE_BYTES = 1 << 16;
/** 32-bit address space, minus the memory that the passes need besides the rows. */
const MAX_ROW_BYTES = 2 ** 32 - 2 ** 25;
const MASSES_ADDRESS = 0;
const BUCKETS_ADDRESS = MASSES_ADDRESS + (NUM_BUCKETS + NUM_OUTSIDE) * Float64Array.BYTES_PER_ELEMENT;

/** Mutable: the rows, and scratch memory for one row at a time. Its memory never moves. */
export class LogitsKernel {
  /** Row-major [numRows, vocabSize]. Passes accept only these rows. */
  readonly logits: Float32Array;
  /** [vocabSize]; filled by `fillBuckets`. A value of `NUM_BUCKETS` or more means no bucket. */
  readonly bucketOf: Uint16Array;
  /** [NUM_BUCKETS]: filled by `fillBuckets`. */
  readonly masses: Float64Array;
  readonly #exports: LogitsExports;

  /** @throws EngineError `invalid_configuration` if that many rows do not fit into one memory. */
  constructor(numRows: number, vocabSize: number) {
    const rowsAddress = BUCKETS_ADDRESS + Math.ceil(vocabSize / 8) * 8 * Uint16Array.BYTES_PER_ELEMENT;
    const rowBytes = numRows * vocabSize * Float32Array.BYTES_PER_ELEMENT;
    if (rowBytes > MAX_ROW_BYTES) {
      const most = Math.floor(MAX_ROW_BYTES / (vocabSize * Float32Array.BYTES_PER_ELEMENT));
      const message = `Logits of ${numRows} sequences with ${vocabSize} tokens each do not fit into 4 GB: at most ${most} sequences do.`;
      throw new EngineError("invalid_configuration", message);
    }
    const module = new WebAssembly.Module(readFileSync(new URL("./kernel/logits.wasm", import.meta.url)));
    this.#exports = new WebAssembly.Instance(module).exports as LogitsExports;
    const { memory } = this.#exports;
    memory.grow(Math.max(0, Math.ceil((rowsAddress + rowBytes - memory.buffer.byteLength) / PAGE_BYTES)));
    const { buffer } = memory;
    this.masses = new Float64Array(buffer, MASSES_ADDRESS, NUM_BUCKETS);
    this.bucketOf = new Uint16Array(buffer, BUCKETS_ADDRESS, vocabSize);
    this.logits = new Float32Array(buffer, rowsAddress, numRows * vocabSize);
  }

  /** -Infinity if all values are -Infinity or NaN. */
  maximum(row: Float32Array): number {
    return this.#exports.maximum(row.byteOffset, row.length);
  }

  /** Lowest index of the largest value; -1 if all values are -Infinity or NaN. */
  argmax(row: Float32Array): number {
    return this.#exports.argmax(row.byteOffset, row.length);
  }

  /** @param scale A float32, like `largest`, the largest value of `row` times `scale`. */
  fillBuckets(row: Float32Array, scale: number, largest: number): void {
    this.#exports.fillBuckets(row.byteOffset, row.length, scale, largest, BUCKETS_ADDRESS, MASSES_ADDRESS);
  }
}
