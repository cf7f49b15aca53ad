/** Counts the pixels of a TIFF's tiles: decoders compute whole tiles, of which the picture may show a single pixel. */
import { readTiffTags } from "./tiff-tags.ts";

const TILE_WIDTH = 322;
const TILE_LENGTH = 323;

interface PixelSize {
  readonly width: number;
  readonly height: number;
}

/**
 * Pixels of all tiles of the first page together; those of the picture itself if it has no tiles.
 *
 * @throws EngineError `invalid_image` for a size of tiles that is no plain number.
 */
export function countTiffPixels(bytes: Uint8Array, { width, height }: PixelSize): number {
  const tags = readTiffTags(bytes, [TILE_WIDTH, TILE_LENGTH]);
  const tile = { width: tags.get(TILE_WIDTH) ?? 0, height: tags.get(TILE_LENGTH) ?? 0 };
  // A picture in strips.
  if (tile.width === 0 || tile.height === 0) return width * height;
  const padded = (length: number, tileLength: number): number => Math.ceil(length / tileLength) * tileLength;
  return padded(width, tile.width) * padded(height, tile.height);
}
