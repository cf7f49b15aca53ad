/** Shows a picture as a whole and in tiles, on the threads that decode pictures. */
import { padToSquare } from "../../multimodal/pad-picture.ts";
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { createTileValues } from "../tiles/tile-values.ts";
import { featureRows, ocrGrid, parseOcrImageOptions } from "./image-options.ts";

/**
 * `pixel_values` [numTiles, 3, tile, tile], the tiles row by row, none for a small picture; `whole_pixel_values`
 * [3, whole, whole], the picture in the middle of a square; and `feature_rows`.
 */
export const toTensors: PixelProgram = (image, json, { resample, valuesOfBytes }) => {
  const options = parseOcrImageOptions(json);
  const { tile, whole, filter } = options;
  const values = valuesOfBytes(options.scaling);
  const grid = ocrGrid(image, options);
  const tiles = createTileValues((grid?.rows ?? 0) * (grid?.columns ?? 0), tile, values);
  if (grid !== null) {
    tiles.addTiles(resample(image, { width: grid.columns * tile, height: grid.rows * tile, filter }), grid);
  }
  const scale = whole / Math.max(image.width, image.height);
  const sideOf = (side: number): number => Math.max(roundHalfToEven(side * scale), 1);
  const fitted = resample(image, { width: sideOf(image.width), height: sideOf(image.height), filter });
  const square = createTileValues(1, whole, values);
  square.addTiles(padToSquare(fitted, options.background), { rows: 1, columns: 1 });
  const rows = featureRows(grid, options);
  return new Map<string, ItemTensor>([
    ["pixel_values", tiles.tensor],
    ["whole_pixel_values", { ...square.tensor, shape: [3, whole, whole] }],
    ["feature_rows", { elementType: "int64", shape: [rows.length], data: rows }],
  ]);
};
