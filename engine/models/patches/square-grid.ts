/** Pictures that are resized to whole squares of patches, each of which becomes one embedding. */
import type { ImageSize } from "../../multimodal/processing-info.ts";

/** A picture divided into squares. */
export interface SquareGrid {
  readonly rows: number;
  readonly columns: number;
}

export interface SquareLimits {
  /** Side of a square, in pixels. */
  readonly squareSize: number;
  /** Of the whole picture. */
  readonly minPixels: number;
  readonly maxPixels: number;
}

/**
 * The nearest grid, or if it has too many or too few pixels, one in the picture's shape: scaled down and rounded down, to
 * no less than one square on each side, or scaled up and rounded up. `smart_resize` of transformers' image processors.
 */
export function fitSquares(
  { width, height }: ImageSize,
  nearest: SquareGrid,
  { squareSize, minPixels, maxPixels }: SquareLimits,
): SquareGrid {
  const numPixels = nearest.rows * nearest.columns * squareSize ** 2;
  if (numPixels > maxPixels) {
    const shrink = Math.sqrt((height * width) / maxPixels);
    const squares = (edge: number): number => Math.max(Math.floor(edge / shrink / squareSize), 1);
    return { rows: squares(height), columns: squares(width) };
  }
  if (numPixels < minPixels) {
    const grow = Math.sqrt(minPixels / (height * width));
    const squares = (edge: number): number => Math.ceil((edge * grow) / squareSize);
    return { rows: squares(height), columns: squares(width) };
  }
  return nearest;
}
