/** The patches of a resized picture, or of the frames of a video that share their patches. */
import type { RgbImage } from "../../multimodal/pixel-program.ts";
import type { PatchOrder } from "../built-model.ts";

export interface PatchLayout {
  /** Side of a patch, in pixels. */
  readonly patchSize: number;
  /** Side of the squares of patches that become one embedding; the picture divides into them. */
  readonly mergeSize: number;
  /** Number of pictures that a patch spans; fewer are repeated. */
  readonly numTimes: number;
  /** For each channel [256]. */
  readonly values: readonly Float32Array[];
}

/**
 * `pixel_values` float32 [numPatches, 3 * temporal * patch * patch]: squares row by row, the patches of each row by row,
 * a patch's planes of colour one after the other, each for every picture in time; and `image_grid_thw` int64 [3]: 1, rows
 * and columns of patches.
 */
export function patchTensors(picture: RgbImage, layout: PatchLayout) {
  const { width, height } = picture;
  const data = patchValues(picture, { left: 0, top: 0, width, height }, layout);
  const [rows, columns] = [height / layout.patchSize, width / layout.patchSize];
  const grid = BigInt64Array.of(1n, BigInt(rows), BigInt(columns));
  return new Map([
    ["pixel_values", { elementType: "float32", shape: [rows * columns, data.length / (rows * columns)], data }],
    ["image_grid_thw", { elementType: "int64", shape: [3], data: grid }],
  ] as const);
}

/** A part of a picture, in pixels. */
export interface PictureRegion {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** The patches of a region that divides into squares, in the order of `pixel_values` of `patchTensors`. */
export function patchValues(
  picture: RgbImage,
  region: PictureRegion,
  { patchSize, mergeSize, numTimes, values }: PatchLayout,
): Float32Array<ArrayBuffer> {
  const squareSize = patchSize * mergeSize;
  const rows = region.height / squareSize;
  const columns = region.width / squareSize;
  const numPatches = rows * columns * mergeSize * mergeSize;
  const numFeatures = values.length * numTimes * patchSize * patchSize;
  const pixelValues = new Float32Array(numPatches * numFeatures);
  let to = 0;
  for (let patch = 0; patch < numPatches; patch++) {
    const square = Math.floor(patch / (mergeSize * mergeSize));
    const inner = patch % (mergeSize * mergeSize);
    const top = region.top + Math.floor(square / columns) * squareSize + Math.floor(inner / mergeSize) * patchSize;
    const left = region.left + (square % columns) * squareSize + (inner % mergeSize) * patchSize;
    to = writePatch(picture, { left, top }, { patchSize, numTimes, values }, pixelValues, to);
  }
  return pixelValues;
}

const noPictures: NonNullable<RgbImage["further"]> = [];

/**
 * Writes the patch whose corner is at `place`: its planes of colour one after the other, each for every picture in
 * time. The last picture is repeated.
 *
 * @returns Where the next patch begins.
 */
export function writePatch(
  picture: RgbImage,
  { left, top }: { readonly left: number; readonly top: number },
  { patchSize, numTimes, values }: Pick<PatchLayout, "patchSize" | "numTimes" | "values">,
  target: Float32Array,
  start: number,
): number {
  const planeLength = patchSize * patchSize;
  const { further = noPictures } = picture;
  let to = start;
  for (const [channel, valueOf] of values.entries()) {
    for (let time = 0; time <= further.length; time++) {
      const { data, width } = time === 0 ? picture : further[time - 1]!;
      for (let row = top; row < top + patchSize; row++) {
        let from = (row * width + left) * 3 + channel;
        for (let column = 0; column < patchSize; column++) {
          target[to++] = valueOf[data[from]!]!;
          from += 3;
        }
      }
    }
    const last = to - planeLength;
    for (let time = further.length + 1; time < numTimes; time++) {
      target.copyWithin(to, last, last + planeLength);
      to += planeLength;
    }
  }
  return to;
}

/**
 * The picture of patches that are not repeated in time, row-major [channels, height, width].
 *
 * @param grid Rows and columns of patches.
 * @param patches As `pixel_values` of `patchTensors`.
 */
export function pictureOfPatches(
  patches: Float32Array,
  [rows, columns]: readonly [number, number],
  { patchSize, mergeSize }: PatchOrder,
): Float32Array {
  const [height, width] = [rows * patchSize, columns * patchSize];
  const numChannels = patches.length / (height * width);
  const squareSize = patchSize * mergeSize;
  const squaresPerRow = columns / mergeSize;
  const picture = new Float32Array(patches.length);
  let from = 0;
  for (let patch = 0; patch < rows * columns; patch++) {
    const square = Math.floor(patch / (mergeSize * mergeSize));
    const inner = patch % (mergeSize * mergeSize);
    const top = Math.floor(square / squaresPerRow) * squareSize + Math.floor(inner / mergeSize) * patchSize;
    const left = (square % squaresPerRow) * squareSize + (inner % mergeSize) * patchSize;
    for (let channel = 0; channel < numChannels; channel++) {
      for (let row = top; row < top + patchSize; row++) {
        picture.set(patches.subarray(from, from + patchSize), (channel * height + row) * width + left);
        from += patchSize;
      }
    }
  }
  return picture;
}
