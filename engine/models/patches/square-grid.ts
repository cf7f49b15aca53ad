/** Pictures that are resized to whole squares of patches, each of which becomes one embedding. */
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";

/** A picture divided into squares. */
export interface SquareGrid {
  readonly rows: number;
  readonly columns: number;
}

export interface SquareLimits {
  /** Side of a square, in pixels. */
  readonly squareSize: number;
  /** Of the whole picture, or of all frames of a video. */
  readonly minPixels: number;
  readonly maxPixels: number;
  /** Given for a frame of a video. */
  readonly video?: CountedFrames | null;
}

/** Frames over which limits count pixels. */
export interface CountedFrames {
  readonly numFrames: number;
  /** Frames that a patch spans. */
  readonly numTimes: number;
}

/**
 * The nearest grid, or if it has too many or too few pixels, one in the picture's shape: scaled down and rounded down, to
 * no less than one square on each side, or scaled up and rounded up. `smart_resize` of transformers' image processors.
 */
export function fitSquares(
  { width, height }: ImageSize,
  nearest: SquareGrid,
  { squareSize, minPixels, maxPixels, video }: SquareLimits,
): SquareGrid {
  const { numFrames, numTimes } = video ?? { numFrames: 1, numTimes: 1 };
  const numPixels = wholeTimes(numFrames, numTimes) * nearest.rows * nearest.columns * squareSize ** 2;
  if (numPixels > maxPixels) {
    const shrink = Math.sqrt((numFrames * height * width) / maxPixels);
    const squares = (edge: number): number => Math.max(Math.floor(edge / shrink / squareSize), 1);
    return { rows: squares(height), columns: squares(width) };
  }
  if (numPixels < minPixels) {
    const grow = Math.sqrt(minPixels / (numFrames * height * width));
    const squares = (edge: number): number => Math.ceil((edge * grow) / squareSize);
    return { rows: squares(height), columns: squares(width) };
  }
  return nearest;
}

/** The frames that `smart_resize` counts: the nearest number that divides into patches, of two neighbours an even one. */
export function wholeTimes(numFrames: number, numTimes: number): number {
  return roundHalfToEven(numFrames / numTimes) * numTimes;
}
