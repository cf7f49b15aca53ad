/** The compiled kernel of a resize and its memory. */
import { readFileSync } from "node:fs";

/** Exports of kernel/filter.wasm, described in kernel/filter.ts: addresses in `memory`, strides in bytes. */
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
/** Above a photograph's needs. WebAssembly memory never shrinks, so a kernel with more memory is discarded. */
const MAX_KEPT_BYTES = 1 << 22;

// One of each per thread, created by its first resize.
let compiled: WebAssembly.Module | null = null;
let kept: FilterKernel | null = null;

/**
 * Returns the thread's kernel, which the caller may use until it returns to the event loop. Its memory contains data of
 * the previous resize.
 */
export function takeFilterKernel(numBytes: number): FilterKernel {
  compiled ??= new WebAssembly.Module(readFileSync(new URL("./kernel/filter.wasm", import.meta.url)));
  const kernel = kept ?? (new WebAssembly.Instance(compiled).exports as FilterKernel);
  kept = numBytes <= MAX_KEPT_BYTES ? kernel : null;
  const numPages = Math.ceil((numBytes - kernel.memory.buffer.byteLength) / PAGE_BYTES);
  if (numPages > 0) kernel.memory.grow(numPages);
  return kernel;
}
