/** Counts the pixels of a TIFF's tiles: decoders compute whole tiles, of which the picture may show a single pixel. */
import { EngineError } from "../contract/errors.ts";

const TILE_WIDTH = 322;
const TILE_LENGTH = 323;
const ENTRY_BYTES = 12;

/** Bytes of a value by its type: BYTE, SHORT, LONG. */
const bytesOfType: Readonly<Record<number, number>> = { 1: 1, 3: 2, 4: 4 };

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
  const tile = readTileSize(bytes);
  if (tile === null) return width * height;
  const padded = (length: number, tileLength: number): number => Math.ceil(length / tileLength) * tileLength;
  return padded(width, tile.width) * padded(height, tile.height);
}

/** Null for a picture in strips. Of several values, the largest counts. */
function readTileSize(bytes: Uint8Array): PixelSize | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isLittleEndian = bytes[0] === "I".charCodeAt(0);
  const directory = view.getUint32(4, isLittleEndian);
  if (directory + 2 > bytes.byteLength) return null;
  const numEntries = view.getUint16(directory, isLittleEndian);
  let width = 0;
  let height = 0;
  for (let entry = 0; entry < numEntries; entry++) {
    const at = directory + 2 + entry * ENTRY_BYTES;
    if (at + ENTRY_BYTES > bytes.byteLength) break;
    const tag = view.getUint16(at, isLittleEndian);
    if (tag === TILE_WIDTH) width = Math.max(width, readNumber(view, at, isLittleEndian));
    if (tag === TILE_LENGTH) height = Math.max(height, readNumber(view, at, isLittleEndian));
  }
  return width === 0 || height === 0 ? null : { width, height };
}

/** The value of an entry: a type, a count of 1, and four bytes that start with the number. */
function readNumber(view: DataView, at: number, isLittleEndian: boolean): number {
  const numBytes = bytesOfType[view.getUint16(at + 2, isLittleEndian)];
  if (numBytes === undefined || view.getUint32(at + 4, isLittleEndian) !== 1) {
    throw new EngineError("invalid_image", "The tiff picture is broken or incomplete.");
  }
  if (numBytes === 1) return view.getUint8(at + 8);
  return numBytes === 2 ? view.getUint16(at + 8, isLittleEndian) : view.getUint32(at + 8, isLittleEndian);
}
