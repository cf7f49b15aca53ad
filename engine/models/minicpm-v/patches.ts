/** Order and positions of the patches of a picture or slice. */
import type { ImageSize } from "../../multimodal/processing-info.ts";

export interface PatchGrid {
  readonly rows: number;
  readonly columns: number;
}

export function patchesOf({ width, height }: ImageSize, patchSize: number): PatchGrid {
  return { rows: height / patchSize, columns: width / patchSize };
}

/**
 * Squares row by row. A square of 2 x 2 patches has them row by row, and one of 4 x 4 its four quarters, so that mergers
 * find the patches that become one row next to each other.
 */
export function* patchPlaces(
  { rows, columns }: PatchGrid,
  square: number,
): Iterable<{ readonly row: number; readonly column: number }> {
  const inner = square / 2;
  for (let row = 0; row < rows; row += square) {
    for (let column = 0; column < columns; column += square) {
      if (square === 1) yield { row, column };
      else {
        for (const place of patchPlaces({ rows: square, columns: square }, inner)) {
          yield { row: row + place.row, column: column + place.column };
        }
      }
    }
  }
}

/**
 * For each of the patches of a row or column: the line of the table in which its place lies, as a fraction of the whole.
 * transformers compares fractions in single precision; with the hub's table of 70 lines, both give the same.
 */
export function positionIds(length: number, positionsPerSide: number): number[] {
  return Array.from({ length }, (_, index) => Math.floor((index * positionsPerSide) / length));
}
