/** Turns pictures into the patches of LFM2-VL's tiles, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { patchValues, type PictureRegion } from "../patches/patch-values.ts";
import { layOutPicture, parseLfm2TileOptions } from "./tiles.ts";

/**
 * `pixel_values` [numPatches, 3 * patch * patch]: the patches of the tiles, row by row of tiles, and then those of the
 * whole picture, each square by square; and `spatial_shapes` int64 [2, 2]: rows and columns of patches of a tile, and of
 * the whole picture. Without the whole picture, the last tile takes its place. A picture that is not cut is the only
 * tile, with a grey square of patches behind it whose sides are given as zeros; see `attendWithinCrops`.
 */
export const toTensors: PixelProgram = (image, json, { resample, valuesOfBytes }) => {
  const options = parseLfm2TileOptions(json);
  const { encoder_patch_size: patchSize, downsample_factor: mergeSize, tile_size: tile, resample: filter } = options;
  const layout = { patchSize, mergeSize, numTimes: 1, values: valuesOfBytes(options.scaling) };
  const { tiles, whole } = layOutPicture(image, options);
  const parts: Float32Array[] = [];
  if (tiles !== null) {
    const picture = resample(image, { width: tiles.columns * tile, height: tiles.rows * tile, filter });
    for (let row = 0; row < tiles.rows; row++) {
      for (let column = 0; column < tiles.columns; column++) {
        const region: PictureRegion = { left: column * tile, top: row * tile, width: tile, height: tile };
        parts.push(patchValues(picture, region, layout));
      }
    }
  }
  if (whole !== null) {
    const size = { width: whole.columns * options.squareSize, height: whole.rows * options.squareSize };
    parts.push(patchValues(resample(image, { ...size, filter }), { left: 0, top: 0, ...size }, layout));
  }
  const numFeatures = 3 * patchSize ** 2;
  if (tiles === null) parts.push(new Float32Array(mergeSize ** 2 * numFeatures));
  const data = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let end = 0;
  for (const part of parts) {
    data.set(part, end);
    end += part.length;
  }
  const tileSides = [tile / patchSize, tile / patchSize];
  const wholeSides = whole === null ? tileSides : [whole.rows * mergeSize, whole.columns * mergeSize];
  const sides = tiles === null ? [...wholeSides, 0, 0] : [...tileSides, ...wholeSides];
  const shapes = BigInt64Array.from(sides, BigInt);
  return new Map([
    ["pixel_values", { elementType: "float32", shape: [data.length / numFeatures, numFeatures], data }],
    ["spatial_shapes", { elementType: "int64", shape: [2, 2], data: shapes }],
  ]);
};
