/** The quarter turns and mirrorings that a file asks for. */
import type { NativeCodecParameters } from "./native-library.ts";

/** `AV_PKT_DATA_DISPLAYMATRIX`. */
const DISPLAY_MATRIX = 5;
/** Nine numbers of 32 bits. */
const DISPLAY_MATRIX_BYTES = 36;

/** Where the shown pixel (x, y) is stored: columns are x or y, forwards or backwards. */
export interface Orientation {
  /** Whether rows are shown as columns. */
  readonly swapsAxes: boolean;
  /** In stored pixels. */
  readonly mirrorsColumns: boolean;
  readonly mirrorsRows: boolean;
}

const upright: Orientation = { swapsAxes: false, mirrorsColumns: false, mirrorsRows: false };

/** Rotations by other angles than quarter turns are left out, as in OpenCV. */
export function readOrientation(parameters: NativeCodecParameters): Orientation {
  const bytes = parameters.getCodedSideData(DISPLAY_MATRIX);
  if (bytes === null || bytes.byteLength !== DISPLAY_MATRIX_BYTES) return upright;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  // A stored point (column, row) is shown at (a * column + c * row, b * column + d * row), and moved into the picture.
  const [a, b, c, d] = [0, 4, 12, 16].map((offset) => view.getInt32(offset, true)) as [number, number, number, number];
  if (a !== 0 && d !== 0 && b === 0 && c === 0) return { swapsAxes: false, mirrorsColumns: a < 0, mirrorsRows: d < 0 };
  if (b !== 0 && c !== 0 && a === 0 && d === 0) return { swapsAxes: true, mirrorsColumns: b < 0, mirrorsRows: c < 0 };
  return upright;
}

/** [rows, columns, 3] as stored to [rows, columns, 3] as shown. Returns `stored` itself if both are the same. */
export function orient(
  stored: Uint8Array,
  { width, height }: { readonly width: number; readonly height: number },
  { swapsAxes, mirrorsColumns, mirrorsRows }: Orientation,
): Uint8Array {
  if (!swapsAxes && !mirrorsColumns && !mirrorsRows) return stored;
  const shown = new Uint8Array(stored.byteLength);
  const columnStep = mirrorsColumns ? -3 : 3;
  const rowStep = (mirrorsRows ? -3 : 3) * width;
  const origin = (mirrorsColumns ? (width - 1) * 3 : 0) + (mirrorsRows ? (height - 1) * width * 3 : 0);
  const [shownWidth, shownHeight] = swapsAxes ? [height, width] : [width, height];
  const [stepX, stepY] = swapsAxes ? [rowStep, columnStep] : [columnStep, rowStep];
  for (let y = 0, to = 0; y < shownHeight; y++) {
    for (let x = 0, from = origin + y * stepY; x < shownWidth; x++, from += stepX, to += 3) {
      shown[to] = stored[from]!;
      shown[to + 1] = stored[from + 1]!;
      shown[to + 2] = stored[from + 2]!;
    }
  }
  return shown;
}
