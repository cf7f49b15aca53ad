/**
 * Resizes 8-bit RGB pictures bit-identically to Pillow, on whose output models are trained. The sums of the two passes are
 * computed in WebAssembly, see kernel/filter.ts.
 */
import { readFileSync } from "node:fs";

import { EngineError } from "../contract/errors.ts";
import { computeCoefficients } from "../resample-coefficients.ts";
import type { AxisCoefficients, ResampleFilterName } from "../resample-coefficients.ts";
import type { DecodedImage } from "./decode-image.ts";

interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** A rectangle inside the resized picture. */
interface ResampleWindow {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export interface ResampleOptions {
  /** Size of the whole resized picture. */
  readonly width: number;
  readonly height: number;
  readonly filter: ResampleFilterName;
  /**
   * The part to compute; null for everything. Without it, cropping a picture one pixel wide and thousands high would
   * first create a picture of gigabytes.
   */
  readonly window: ResampleWindow | null;
}

/**
 * Equals `Image.resize((width, height), filter)` of Pillow 13, cropped to the window: a horizontal pass over the rows
 * that the vertical pass needs, then the vertical pass, or the other way round, with fixed-point weights and rounding to
 * 8 bits after each. An axis that keeps its size has one weight of 1 per pixel, so filtering does not change it. Throws
 * EngineError `image_too_large`.
 */
export function resample(image: DecodedImage, { width, height, filter, window }: ResampleOptions): DecodedImage {
  const { left, top, ...size } = window ?? { left: 0, top: 0, width, height };
  const columns = { inputSize: image.width, outputSize: width, start: left, length: size.width };
  const rows = { inputSize: image.height, outputSize: height, start: top, length: size.height };
  if (filter === "nearest" || (width === image.width && height === image.height)) {
    return pickNearest(image, nearestIndices(columns), nearestIndices(rows));
  }
  const filterInOrder = isVerticalFirst(image, { width, height }) ? filterPictureVerticallyFirst : filterPicture;
  const data = filterInOrder(image, computeCoefficients(filter, columns), computeCoefficients(filter, rows));
  return { width: size.width, height: size.height, data };
}

/** Pillow 13's rule: if the height loses more than twice as many pixels as the width. Pillow 12 has no such rule. */
function isVerticalFirst(from: ImageSize, to: ImageSize): boolean {
  return from.height - to.height > 2 * Math.max(from.width - to.width, 0);
}

/**
 * Maximum number of pixels of an axis to step through: a strip of millions of pixels, scaled up, would have billions.
 */
const MAX_STEPS = 1 << 27;

/** Input index of each output pixel of the window, added up step by step like in Pillow, including rounding. */
function nearestIndices(axis: { inputSize: number; outputSize: number; start: number; length: number }): Int32Array {
  const numSteps = axis.start + axis.length;
  if (numSteps > MAX_STEPS) {
    throw new EngineError(
      "image_too_large",
      `Resizing ${axis.inputSize} pixels to ${axis.outputSize} takes ${numSteps} steps; the limit is ${MAX_STEPS}.`,
    );
  }
  const scale = axis.inputSize / axis.outputSize;
  const indices = new Int32Array(axis.length);
  let position = scale * 0.5;
  for (let output = 0; output < numSteps; output++) {
    if (output >= axis.start) indices[output - axis.start] = Math.min(Math.trunc(position), axis.inputSize - 1);
    position += scale;
  }
  return indices;
}

function pickNearest(image: DecodedImage, columns: Int32Array, rows: Int32Array): DecodedImage {
  const data = new Uint8Array(columns.length * rows.length * 3);
  let to = 0;
  for (const row of rows) {
    for (const column of columns) {
      const from = (row * image.width + column) * 3;
      data[to] = image.data[from]!;
      data[to + 1] = image.data[from + 1]!;
      data[to + 2] = image.data[from + 2]!;
      to += 3;
    }
  }
  return { width: columns.length, height: rows.length, data };
}

/** Input that is copied and filtered at once: small enough for the inner caches. */
const CHUNK_BYTES = 1 << 16;
/** Filtered rows that the band holds beyond one output row's taps, so that rows are rarely moved up. */
const NUM_SPARE_ROWS = 64;
/** As in kernel/filter.ts. */
const LOW_BITS = 15;

/**
 * Returns [rows.numOutputs, columns.numOutputs, 3]: filters the picture's rows that `rows` needs by `columns`, rounds
 * to bytes, and filters the result by `rows`. The filtered rows are in a band that moves down the picture, so memory
 * depends on the taps and the width of the result, not on the height of the picture.
 */
function filterPicture(image: DecodedImage, columns: AxisCoefficients, rows: AxisCoefficients): Uint8Array {
  const lastOutput = rows.numOutputs - 1;
  const endRow = rows.starts[lastOutput]! + rows.numTaps[lastOutput]!;
  const numRows = endRow - rows.starts[0]!;
  const inputStride = image.width * 3;
  const rowLength = columns.numOutputs * 3;
  // The kernel writes one byte past each row and reads 16 bytes at a time.
  const stride = roundUpTo16(rowLength + 1);
  const chunkRows = Math.min(Math.max(Math.trunc(CHUNK_BYTES / inputStride) & ~3, 4), numRows);
  const bandRows = Math.min(rows.maxTaps + NUM_SPARE_ROWS, numRows);
  const passes = packPasses(columns, rows);
  const { tapsAt, columnWeightsAt, columnWeightsStride, rowWeightsAt, rowWeightsStride } = passes;

  const chunkAt = passes.endAt;
  // Taps are padded to fours and pairs: the bytes after the last tap, of the next part, are multiplied by zero.
  const bandAt = chunkAt + roundUpTo16(chunkRows * inputStride);
  const outputAt = bandAt + bandRows * stride;
  const kernel = takeFilterKernel(outputAt + stride);
  const memory = new Uint8Array(kernel.memory.buffer);
  passes.writeTo(memory.buffer);

  // The band contains the filtered rows [bandStart, bandEnd) of the picture.
  let bandStart = 0;
  let bandEnd = 0;
  const moveBandTo = (start: number): void => {
    if (start < bandEnd) memory.copyWithin(bandAt, bandAt + (start - bandStart) * stride, outputAt);
    bandStart = start;
    // A box filter can skip a row between two outputs.
    bandEnd = Math.max(bandEnd, start);
    const fullEnd = Math.min(start + bandRows, endRow);
    while (bandEnd < fullEnd) {
      const chunkEnd = Math.min(bandEnd + chunkRows, fullEnd);
      memory.set(image.data.subarray(bandEnd * inputStride, chunkEnd * inputStride), chunkAt);
      kernel.filterRows(
        chunkAt,
        inputStride,
        chunkEnd - bandEnd,
        tapsAt,
        columnWeightsAt,
        columnWeightsStride,
        columns.numOutputs,
        bandAt + (bandEnd - bandStart) * stride,
        stride,
      );
      bandEnd = chunkEnd;
    }
  };

  const output = new Uint8Array(rows.numOutputs * rowLength);
  for (let row = 0; row < rows.numOutputs; row++) {
    const start = rows.starts[row]!;
    if (start + rows.numTaps[row]! > bandEnd) moveBandTo(start);
    const rowsAt = bandAt + (start - bandStart) * stride;
    const numPairs = (rows.numTaps[row]! + 1) >> 1;
    kernel.filterColumns(rowsAt, stride, rowWeightsAt + row * rowWeightsStride, numPairs, outputAt);
    output.set(memory.subarray(outputAt, outputAt + rowLength), row * rowLength);
  }
  return output;
}

/**
 * Like `filterPicture`, with the passes in the other order: filters the picture's columns by `rows`, rounds to bytes, and
 * filters each resulting row by `columns`. The picture's rows are in a band that moves down it.
 */
function filterPictureVerticallyFirst(
  image: DecodedImage,
  columns: AxisCoefficients,
  rows: AxisCoefficients,
): Uint8Array {
  const inputStride = image.width * 3;
  // The kernel reads 16 bytes at a time.
  const stride = roundUpTo16(inputStride);
  const bandRows = Math.min(rows.maxTaps + NUM_SPARE_ROWS, image.height);
  const passes = packPasses(columns, rows);
  const { tapsAt, columnWeightsAt, columnWeightsStride, rowWeightsAt, rowWeightsStride } = passes;

  const bandAt = roundUpTo16(passes.endAt);
  // Taps are padded to pairs and fours: rows and pixels after the last one are multiplied by zero.
  const filteredAt = bandAt + (bandRows + 1) * stride;
  const outputAt = filteredAt + stride + 16;
  const rowLength = columns.numOutputs * 3;
  const kernel = takeFilterKernel(outputAt + roundUpTo16(rowLength + 1));
  const memory = new Uint8Array(kernel.memory.buffer);
  passes.writeTo(memory.buffer);

  // The band contains the rows [bandStart, bandEnd) of the picture.
  let bandStart = 0;
  let bandEnd = 0;
  const moveBandTo = (start: number): void => {
    if (start < bandEnd) {
      memory.copyWithin(bandAt, bandAt + (start - bandStart) * stride, bandAt + (bandEnd - bandStart) * stride);
    }
    bandStart = start;
    // A box filter can skip a row between two outputs.
    bandEnd = Math.max(bandEnd, start);
    for (; bandEnd < Math.min(start + bandRows, image.height); bandEnd++) {
      const row = image.data.subarray(bandEnd * inputStride, (bandEnd + 1) * inputStride);
      memory.set(row, bandAt + (bandEnd - bandStart) * stride);
    }
  };

  const output = new Uint8Array(rows.numOutputs * rowLength);
  for (let row = 0; row < rows.numOutputs; row++) {
    const start = rows.starts[row] ?? 0;
    const numTaps = rows.numTaps[row] ?? 0;
    if (start + numTaps > bandEnd) moveBandTo(start);
    const rowsAt = bandAt + (start - bandStart) * stride;
    const numPairs = (numTaps + 1) >> 1;
    kernel.filterColumns(rowsAt, stride, rowWeightsAt + row * rowWeightsStride, numPairs, filteredAt);
    kernel.filterRows(
      filteredAt,
      stride,
      1,
      tapsAt,
      columnWeightsAt,
      columnWeightsStride,
      columns.numOutputs,
      outputAt,
      rowLength,
    );
    output.set(memory.subarray(outputAt, outputAt + rowLength), row * rowLength);
  }
  return output;
}

/** Places of both passes' coefficients at the start of the kernel's memory, in bytes. */
interface PackedPasses {
  readonly tapsAt: number;
  readonly columnWeightsAt: number;
  /** Bytes of one column's weights. */
  readonly columnWeightsStride: number;
  readonly rowWeightsAt: number;
  readonly rowWeightsStride: number;
  /** Where the coefficients end. */
  readonly endAt: number;
  writeTo(this: void, memory: ArrayBuffer): void;
}

function packPasses(columns: AxisCoefficients, rows: AxisCoefficients): PackedPasses {
  const taps = columnTaps(columns);
  const columnWeights = packWeights(columns);
  const rowWeights = packWeights(rows);
  const columnWeightsAt = roundUpTo16(taps.byteLength);
  const rowWeightsAt = columnWeightsAt + columnWeights.byteLength;
  return {
    tapsAt: 0,
    columnWeightsAt,
    columnWeightsStride: columnWeights.byteLength / columns.numOutputs,
    rowWeightsAt,
    rowWeightsStride: rowWeights.byteLength / rows.numOutputs,
    endAt: rowWeightsAt + rowWeights.byteLength,
    writeTo(memory) {
      new Uint32Array(memory).set(taps);
      new Int16Array(memory, columnWeightsAt).set(columnWeights);
      new Int16Array(memory, rowWeightsAt).set(rowWeights);
    },
  };
}

/** By column: the byte of a row where its first pixel starts, and the byte length of its weights. */
function columnTaps({ numOutputs, starts, numTaps }: AxisCoefficients): Uint32Array {
  const taps = new Uint32Array(numOutputs * 2);
  for (let column = 0; column < numOutputs; column++) {
    taps[column * 2] = starts[column]! * 3;
    taps[column * 2 + 1] = Math.ceil(numTaps[column]! / 4) * 16;
  }
  return taps;
}

/**
 * [numOutputs, taps rounded up to fours / 2, 2, 2]: for each pair of taps the high parts of both, then the low parts.
 */
function packWeights({ numOutputs, maxTaps, numTaps, weights }: AxisCoefficients): Int16Array {
  const stride = Math.ceil(maxTaps / 4) * 8;
  const packed = new Int16Array(numOutputs * stride);
  for (let output = 0; output < numOutputs; output++) {
    for (let tap = 0; tap < numTaps[output]!; tap++) {
      const weight = weights[output * maxTaps + tap]!;
      const at = output * stride + (tap >> 1) * 4 + (tap & 1);
      packed[at] = weight >> LOW_BITS;
      packed[at + 2] = weight & ((1 << LOW_BITS) - 1);
    }
  }
  return packed;
}

function roundUpTo16(numBytes: number): number {
  return Math.ceil(numBytes / 16) * 16;
}

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
