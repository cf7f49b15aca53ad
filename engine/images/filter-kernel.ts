/** The compiled sums of a resize and the memory they work in. */
import { readFileSync } from "node:fs";

/** What kernel/filter.wasm exports, as kernel/filter.ts explains it: addresses in `memory`, strides in bytes. */
export interface FilterKernel {
  readonly memory: WebAssembly.Memory;
  filterRows(
    input: number,
    inputStride: number,
    numRows: number,
    taps: number,
    weights: number,
    weightsStride: number,
    numColumns: number,
    output: number,
    outputStride: number,
  ): void;
  filterColumns(input: number, stride: number, weights: number, numPairs: number, output: number): void;
}

const PAGE_BYTES = 1 << 16;
/** Above a photograph's need. Memory of WebAssembly never shrinks, so a kernel that took more is not kept. */
const MAX_KEPT_BYTES = 1 << 22;

// One of each for a thread, made by its first resize.
let compiled: WebAssembly.Module | null = null;
let kept: FilterKernel | null = null;

/** The thread's kernel, the caller's until it returns to its event loop; memory holds what the last one left. */
export function takeFilterKernel(numBytes: number): FilterKernel {
  compiled ??= new WebAssembly.Module(readFileSync(new URL("./kernel/filter.wasm", import.meta.url)));
  const kernel = kept ?? (new WebAssembly.Instance(compiled).exports as FilterKernel);
  kept = numBytes <= MAX_KEPT_BYTES ? kernel : null;
  const numPages = Math.ceil((numBytes - kernel.memory.buffer.byteLength) / PAGE_BYTES);
  if (numPages > 0) kernel.memory.grow(numPages);
  return kernel;
}
