/** Cuts a picture into tiles, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { createTileValues } from "../tiles/tile-values.ts";
import { internGrid, numInternTiles, parseInternTileOptions } from "./tiles.ts";

/** `pixel_values` [numTiles, 3, tile, tile]: the tiles row by row, then the whole picture if there are several. */
export const toTensors: PixelProgram = (image, json, { resample, valuesOfBytes }) => {
  const options = parseInternTileOptions(json);
  const { tile, resample: filter } = options;
  const grid = internGrid(image, options);
  const tiles = createTileValues(numInternTiles(grid), tile, valuesOfBytes(options.scaling));
  tiles.addTiles(resample(image, { width: grid.columns * tile, height: grid.rows * tile, filter }), grid);
  const isCut = grid.rows * grid.columns > 1;
  if (isCut) tiles.addTiles(resample(image, { width: tile, height: tile, filter }), { rows: 1, columns: 1 });
  return new Map([["pixel_values", tiles.tensor]]);
};
