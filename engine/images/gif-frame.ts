/** The first frame of a GIF: where it is in the file and on the canvas, and its colours. */

export interface GifFrame {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Red, green and blue of each colour: its own ones, or those of the file. Empty if there are none. */
  readonly palette: Uint8Array;
  /** The byte behind it; the length of the file or more if the file ends before. */
  readonly end: number;
}

const GIF_HEADER_BYTES = 13;
const DESCRIPTOR_BYTES = 10;
const EXTENSION = 0x21;
const IMAGE = 0x2c;

/** A header and its colours, then extensions and frames, whose data is in blocks of up to 255 bytes. Null without a frame. */
export function firstGifFrame(bytes: Uint8Array): GifFrame | null {
  const common = paletteAt(bytes, GIF_HEADER_BYTES, bytes[10]);
  let at = GIF_HEADER_BYTES + common.byteLength;
  while (bytes[at] === EXTENSION) at = endOfBlocks(bytes, at + 2);
  if (bytes[at] !== IMAGE || at + DESCRIPTOR_BYTES > bytes.byteLength) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, DESCRIPTOR_BYTES);
  const own = paletteAt(bytes, at + DESCRIPTOR_BYTES, bytes[at + 9]);
  return {
    left: view.getUint16(1, true),
    top: view.getUint16(3, true),
    width: view.getUint16(5, true),
    height: view.getUint16(7, true),
    palette: own.byteLength > 0 ? own : common,
    // The byte in front of the blocks is the size of the codes.
    end: endOfBlocks(bytes, at + DESCRIPTOR_BYTES + own.byteLength + 1),
  };
}

/** Of 2 to 256 colours, as the flags before them say. */
function paletteAt(bytes: Uint8Array, start: number, flags = 0): Uint8Array {
  return bytes.subarray(start, (flags & 0x80) === 0 ? start : start + 3 * 2 ** ((flags & 7) + 1));
}

/** Behind the empty block that ends them; the length of the file or more if it ends before. */
function endOfBlocks(bytes: Uint8Array, start: number): number {
  for (let at = start; ;) {
    const length = bytes[at];
    if (length === undefined) return at;
    at += 1 + length;
    if (length === 0) return at;
  }
}

/**
 * Paints the canvas around an opaque first frame, which decoders leave black, in the first colour of the frame's
 * palette, like Pillow.
 *
 * @param rgb Row-major [height, width, 3] of the canvas. Changed.
 */
export function paintGifCanvas(rgb: Uint8Array, canvasWidth: number, frame: GifFrame | null): void {
  const colour = frame?.palette.subarray(0, 3) ?? new Uint8Array();
  if (frame === null || colour.every((shade) => shade === 0)) return;
  const { left, top, width, height } = frame;
  const rowBytes = canvasWidth * 3;
  const row = Uint8Array.from({ length: rowBytes }, (_, at) => colour[at % 3]!);
  for (let y = 0, at = 0; at < rgb.byteLength; y++, at += rowBytes) {
    const isBeside = y >= top && y < top + height;
    const end = isBeside ? Math.min((left + width) * 3, rowBytes) : rowBytes;
    rgb.set(isBeside ? row.subarray(0, left * 3) : row, at);
    rgb.set(row.subarray(end), at + end);
  }
}
