/** Resizes 8-bit RGB pictures bit-identically to Pillow, on whose output models are trained. */
import { EngineError } from "../contract/errors.ts";
import { computeCoefficients, type ResampleFilterName } from "../resample-coefficients.ts";
import type { DecodedImage } from "./decode-image.ts";
import { filterPicture, filterPictureVerticallyFirst } from "./filter-picture.ts";

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
