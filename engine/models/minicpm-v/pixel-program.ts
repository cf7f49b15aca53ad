/** Turns a picture into the patches of MiniCPM-V: those of the whole picture, then those of its slices row by row. */
import type { PixelProgram, RgbImage } from "../../multimodal/pixel-program.ts";
import { writePatch, type PictureRegion } from "../patches/patch-values.ts";
import { parseMiniCpmVImageOptions, type MiniCpmVImageOptions } from "./image-options.ts";
import { patchesOf, patchPlaces, positionIds } from "./patches.ts";
import { sliceLayout } from "./slices.ts";

interface Crop extends PictureRegion {
  readonly picture: RgbImage;
}

/**
 * - `pixel_values` float32 [numPatches, 3 * patch * patch]: each crop in the order of `patchPlaces`; a patch's planes of
 *   colour one after the other
 * - `position_ids` int64 [numPatches]
 * - `slice_grid` int64 [6]: rows and columns of the whole picture's patches, of the slices, and of a slice's patches
 *
 * A picture without slices ends with a black square of patches in place of one, whose embedding is left out; see
 * `attendWithinCrops`.
 */
export const toTensors: PixelProgram = (image, json, { resample, valuesOfBytes }) => {
  const options = parseMiniCpmVImageOptions(json);
  const { filter, patchSize } = options;
  const { whole, slices } = sliceLayout(image, options);
  const crops: Crop[] = [{ picture: resample(image, { ...whole, filter }), left: 0, top: 0, ...whole }];
  if (slices !== null) {
    const { rows, columns, size } = slices;
    const picture = resample(image, { width: columns * size.width, height: rows * size.height, filter });
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        crops.push({ picture, left: column * size.width, top: row * size.height, ...size });
      }
    }
  }
  const ofWhole = patchesOf(whole, patchSize);
  if (slices === null) crops.push(blackSquare(options));
  const ofSlice = patchesOf(crops.at(-1)!, patchSize);
  const grid = [ofWhole.rows, ofWhole.columns, slices?.rows ?? 0, slices?.columns ?? 0, ofSlice.rows, ofSlice.columns];
  const { pixelValues, positions } = cropTensors(crops, options, valuesOfBytes(options.scaling));
  const numPatches = positions.length;
  return new Map([
    [
      "pixel_values",
      { elementType: "float32", shape: [numPatches, pixelValues.length / numPatches], data: pixelValues },
    ],
    ["position_ids", { elementType: "int64", shape: [numPatches], data: positions }],
    ["slice_grid", { elementType: "int64", shape: [grid.length], data: BigInt64Array.from(grid, BigInt) }],
  ] as const);
};

function blackSquare({ patchSize, mergeSize }: MiniCpmVImageOptions): Crop {
  const side = patchSize * mergeSize;
  const picture = { width: side, height: side, data: new Uint8Array(3 * side * side) };
  return { picture, left: 0, top: 0, width: side, height: side };
}

function cropTensors(crops: readonly Crop[], options: MiniCpmVImageOptions, values: readonly Float32Array[]) {
  const { patchSize, mergeSize, positionsPerSide } = options;
  const numPatches = crops.reduce((sum, { width, height }) => sum + (width * height) / patchSize ** 2, 0);
  const pixelValues = new Float32Array(numPatches * values.length * patchSize ** 2);
  const positions = new BigInt64Array(numPatches);
  let patch = 0;
  let to = 0;
  for (const { picture, left, top, ...size } of crops) {
    const { rows, columns } = patchesOf(size, patchSize);
    const rowIds = positionIds(rows, positionsPerSide);
    const columnIds = positionIds(columns, positionsPerSide);
    for (const { row, column } of patchPlaces({ rows, columns }, mergeSize)) {
      const place = { left: left + column * patchSize, top: top + row * patchSize };
      to = writePatch(picture, place, { patchSize, numTimes: 1, values }, pixelValues, to);
      positions[patch++] = BigInt(rowIds[row]! * positionsPerSide + columnIds[column]!);
    }
  }
  return { pixelValues, positions };
}
