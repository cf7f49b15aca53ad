/** Cuts a picture into tiles, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { createTileValues } from "../tiles/tile-values.ts";
import { numTiles, parseTileOptions, tileGrid } from "./tiles.ts";

/** `pixel_values` [numTiles, 3, tile, tile]: the tiles row by row, then the whole picture. */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parseTileOptions(options);
  const grid = tileGrid(image, parsed);
  const tile = parsed.max_image_size.longest_edge;
  let picture = image;
  // Each size is rounded to bytes before the next, like Pillow's pictures.
  for (const size of grid.sizes) picture = resample(picture, { ...size, filter: parsed.resample });

  const tiles = createTileValues(numTiles(grid), tile, valuesOfBytes(parsed.scaling));
  tiles.addTiles(picture, grid);
  const whole = grid.rows === 0 ? picture : resample(picture, { width: tile, height: tile, filter: parsed.resample });
  tiles.addTiles(whole, { rows: 1, columns: 1 });
  return new Map([["pixel_values", tiles.tensor]]);
};
