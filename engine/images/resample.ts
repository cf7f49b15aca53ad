/** Resizes 8-bit RGB pictures to Pillow's very bytes; models are trained on what Pillow gives. */
import type { DecodedImage } from "./decode-image.ts";
import {
  computeCoefficients,
  PRECISION_BITS,
  type AxisCoefficients,
  type ResampleFilterName,
} from "./resample-coefficients.ts";

/** A rectangle of the resized picture, wholly inside it. */
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
   * The part to compute; null is everything. A crop of a picture one pixel wide and thousands high would otherwise
   * pass through a picture of gigabytes.
   */
  readonly window: ResampleWindow | null;
}

const HALF = 1 << (PRECISION_BITS - 1);

/**
 * Equal to Pillow's `Image.resize((width, height), filter)`, cropped to the window: a horizontal pass over the rows
 * that the vertical pass needs, then the vertical pass, with fixed-point weights and rounding to 8 bits after each;
 * an axis that keeps its size is not filtered.
 */
export function resample(image: DecodedImage, { width, height, filter, window }: ResampleOptions): DecodedImage {
  const { left, top, ...size } = window ?? { left: 0, top: 0, width, height };
  const columns = { inputSize: image.width, outputSize: width, start: left, length: size.width };
  const rows = { inputSize: image.height, outputSize: height, start: top, length: size.height };
  if (filter === "nearest") return pickNearest(image, nearestIndices(columns), nearestIndices(rows));

  const vertical = height === image.height ? null : computeCoefficients(filter, rows);
  const firstRow = vertical === null ? top : vertical.starts[0];
  const lastRow =
    vertical === null ? top + size.height : vertical.starts[size.height - 1] + vertical.numTaps[size.height - 1];

  const narrowed =
    width === image.width
      ? cropColumns(image, left, size.width, firstRow, lastRow)
      : filterRows(image, computeCoefficients(filter, columns), firstRow, lastRow);
  const data = vertical === null ? narrowed : filterColumns(narrowed, size.width, vertical, firstRow);
  return { width: size.width, height: size.height, data };
}

/** Rows [firstRow, lastRow) of the image, filtered horizontally: [lastRow - firstRow, numOutputs, 3]. */
function filterRows(image: DecodedImage, axis: AxisCoefficients, firstRow: number, lastRow: number): Uint8Array {
  const { numOutputs, maxTaps, starts, numTaps, weights } = axis;
  const input = image.data;
  const output = new Uint8ClampedArray((lastRow - firstRow) * numOutputs * 3);
  let to = 0;
  for (let row = firstRow; row < lastRow; row++) {
    const rowStart = row * image.width * 3;
    for (let column = 0; column < numOutputs; column++) {
      let from = rowStart + starts[column] * 3;
      const weightsStart = column * maxTaps;
      const weightsEnd = weightsStart + numTaps[column];
      let red = HALF;
      let green = HALF;
      let blue = HALF;
      for (let tap = weightsStart; tap < weightsEnd; tap++) {
        const weight = weights[tap];
        red = (red + Math.imul(input[from], weight)) | 0;
        green = (green + Math.imul(input[from + 1], weight)) | 0;
        blue = (blue + Math.imul(input[from + 2], weight)) | 0;
        from += 3;
      }
      output[to] = red >> PRECISION_BITS;
      output[to + 1] = green >> PRECISION_BITS;
      output[to + 2] = blue >> PRECISION_BITS;
      to += 3;
    }
  }
  return new Uint8Array(output.buffer);
}

/** Columns of `input` ([…, width, 3], whose first row is row `firstRow` of the image) filtered vertically. */
function filterColumns(input: Uint8Array, width: number, axis: AxisCoefficients, firstRow: number): Uint8Array {
  const { numOutputs, maxTaps, starts, numTaps, weights } = axis;
  const stride = width * 3;
  const output = new Uint8ClampedArray(numOutputs * stride);
  // One row of sums, filled input row by input row: reading down columns would miss the cache at every pixel.
  const sums = new Int32Array(stride);
  for (let row = 0; row < numOutputs; row++) {
    sums.fill(HALF);
    for (let tap = 0; tap < numTaps[row]; tap++) {
      const weight = weights[row * maxTaps + tap];
      const from = (starts[row] - firstRow + tap) * stride;
      for (let index = 0; index < stride; index++) {
        sums[index] = (sums[index] + Math.imul(input[from + index], weight)) | 0;
      }
    }
    const to = row * stride;
    for (let index = 0; index < stride; index++) output[to + index] = sums[index] >> PRECISION_BITS;
  }
  return new Uint8Array(output.buffer);
}

function cropColumns(image: DecodedImage, left: number, width: number, firstRow: number, lastRow: number): Uint8Array {
  const stride = image.width * 3;
  if (width === image.width) return image.data.subarray(firstRow * stride, lastRow * stride);
  const output = new Uint8Array((lastRow - firstRow) * width * 3);
  for (let row = firstRow; row < lastRow; row++) {
    const from = row * stride + left * 3;
    output.set(image.data.subarray(from, from + width * 3), (row - firstRow) * width * 3);
  }
  return output;
}

/** Input index of each output pixel of the window; summed up step by step as Pillow does, rounding included. */
function nearestIndices(axis: { inputSize: number; outputSize: number; start: number; length: number }): Int32Array {
  const scale = axis.inputSize / axis.outputSize;
  const indices = new Int32Array(axis.length);
  let position = scale * 0.5;
  for (let output = 0; output < axis.start + axis.length; output++) {
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
      data[to] = image.data[from];
      data[to + 1] = image.data[from + 1];
      data[to + 2] = image.data[from + 2];
      to += 3;
    }
  }
  return { width: columns.length, height: rows.length, data };
}
