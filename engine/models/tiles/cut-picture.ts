/** Cuts a picture into tiles of one size, on the threads that decode pictures. */
import type { PixelTools, RgbImage } from "../../multimodal/pixel-program.ts";
import { createTileValues, type TileGridSize, type TileValues } from "./tile-values.ts";

export interface CutOptions {
  /** Side of a tile, in pixels. */
  readonly tile: number;
  readonly resample: Parameters<PixelTools["resample"]>[1]["filter"];
  readonly scaling: Parameters<PixelTools["valuesOfBytes"]>[0];
}

/** `pixel_values` [numTiles, 3, tile, tile]: the tiles row by row, then the whole picture if there are several. */
export function cutPicture(
  image: RgbImage,
  grid: TileGridSize,
  { tile, resample: filter, scaling }: CutOptions,
  { resample, valuesOfBytes }: PixelTools,
): TileValues["tensor"] {
  const isCut = grid.rows * grid.columns > 1;
  const tiles = createTileValues(grid.rows * grid.columns + Number(isCut), tile, valuesOfBytes(scaling));
  tiles.addTiles(resample(image, { width: grid.columns * tile, height: grid.rows * tile, filter }), grid);
  if (isCut) tiles.addTiles(resample(image, { width: tile, height: tile, filter }), { rows: 1, columns: 1 });
  return tiles.tensor;
}
