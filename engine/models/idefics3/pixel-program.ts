/** Cuts a picture into tiles, on the threads that decode pictures. */
import type { PixelProgram, RgbImage } from "../../multimodal/pixel-program.ts";
import { numTiles, parseTileOptions, tileGrid } from "./tiles.ts";

/** `pixel_values` [numTiles, 3, tile, tile]: the tiles row by row, then the whole picture. */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parseTileOptions(options);
  const grid = tileGrid(image, parsed);
  const tile = parsed.max_image_size.longest_edge;
  let picture = image;
  // Each size is rounded to bytes before the next, like Pillow's pictures.
  for (const size of grid.sizes) picture = resample(picture, { ...size, filter: parsed.resample });

  const values = valuesOfBytes(parsed.scaling);
  const tileLength = 3 * tile * tile;
  const pixelValues = new Float32Array(numTiles(grid) * tileLength);
  let at = 0;
  for (let row = 0; row < grid.rows; row++) {
    for (let column = 0; column < grid.columns; column++) {
      writeTile(pixelValues.subarray(at, at + tileLength), picture, {
        left: column * tile,
        top: row * tile,
        tile,
        values,
      });
      at += tileLength;
    }
  }
  const whole = grid.rows === 0 ? picture : resample(picture, { width: tile, height: tile, filter: parsed.resample });
  writeTile(pixelValues.subarray(at), whole, { left: 0, top: 0, tile, values });
  const shape = [numTiles(grid), 3, tile, tile];
  return new Map([["pixel_values", { elementType: "float32", shape, data: pixelValues }]]);
};

interface TilePlace {
  readonly left: number;
  readonly top: number;
  /** Side of the tile. */
  readonly tile: number;
  /** For each channel [256]. */
  readonly values: readonly Float32Array[];
}

/** Row-major [3, tile, tile]. */
function writeTile(target: Float32Array, image: RgbImage, { left, top, tile, values }: TilePlace): void {
  let to = 0;
  for (const [channel, valueOf] of values.entries()) {
    for (let row = top; row < top + tile; row++) {
      let from = (row * image.width + left) * 3 + channel;
      for (let column = 0; column < tile; column++) {
        target[to++] = valueOf[image.data[from]!]!;
        from += 3;
      }
    }
  }
}
