/** The values of tiles of a picture, on the threads that decode pictures. */
import type { RgbImage } from "../../multimodal/pixel-program.ts";

export interface TileGridSize {
  readonly rows: number;
  readonly columns: number;
}

/** Tiles of one size, one after the other. */
export interface TileValues {
  /** Writes the picture's tiles row by row; the picture has the size of the grid. */
  addTiles(picture: RgbImage, grid: TileGridSize): void;
  /** `pixel_values` [numTiles, 3, tile, tile], complete when `numTiles` tiles were added. */
  readonly tensor: {
    readonly elementType: "float32";
    readonly shape: readonly number[];
    readonly data: Float32Array<ArrayBuffer>;
  };
}

/**
 * @param tile Side of a tile, in pixels.
 * @param values For each channel [256].
 */
export function createTileValues(numTiles: number, tile: number, values: readonly Float32Array[]): TileValues {
  const data = new Float32Array(numTiles * 3 * tile * tile);
  let to = 0;
  /** Row-major [3, tile, tile]. */
  const addTile = (picture: RgbImage, left: number, top: number): void => {
    for (const [channel, valueOf] of values.entries()) {
      for (let row = top; row < top + tile; row++) {
        let from = (row * picture.width + left) * 3 + channel;
        for (let column = 0; column < tile; column++) {
          data[to++] = valueOf[picture.data[from]!]!;
          from += 3;
        }
      }
    }
  };
  return {
    addTiles(picture, { rows, columns }) {
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) addTile(picture, column * tile, row * tile);
      }
    },
    tensor: { elementType: "float32", shape: [numTiles, 3, tile, tile], data },
  };
}
