/** The grid of tiles whose shape is closest to that of a picture. */
import type { ImageSize } from "../../multimodal/processing-info.ts";
import type { TileGridSize } from "./tile-values.ts";

export interface GridLimits {
  /** Number of tiles. */
  readonly fewest: number;
  readonly most: number;
  /** Of a side. Default: any. */
  readonly mostPerSide?: number;
  /** Side of a tile, in pixels. */
  readonly tile: number;
}

/** Of equally close grids, the last one that the picture fills by more than half, else the first; see `grids`. */
export function closestGrid({ width, height }: ImageSize, limits: GridLimits): TileGridSize {
  const { tile } = limits;
  let best: TileGridSize = { rows: 1, columns: 1 };
  let leastDifference = Number.POSITIVE_INFINITY;
  for (const grid of grids(limits)) {
    const difference = Math.abs(width / height - grid.columns / grid.rows);
    const isLargeEnough = width * height > 0.5 * tile * tile * grid.columns * grid.rows;
    if (difference < leastDifference || (difference === leastDifference && isLargeEnough)) best = grid;
    leastDifference = Math.min(difference, leastDifference);
  }
  return best;
}

/** By the number of tiles; among equal ones, by columns. */
export function grids({ fewest, most, mostPerSide = most }: Omit<GridLimits, "tile">): TileGridSize[] {
  const found: TileGridSize[] = [];
  for (let columns = 1; columns <= Math.min(most, mostPerSide); columns++) {
    for (let rows = 1; rows <= mostPerSide && rows * columns <= most; rows++) {
      if (rows * columns >= fewest) found.push({ rows, columns });
    }
  }
  return found.sort((one, other) => one.rows * one.columns - other.rows * other.columns);
}
