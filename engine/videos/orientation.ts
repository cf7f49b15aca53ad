/** The quarter turns and mirrorings that a video asks for. */
import { upright, type Orientation } from "../images/orientation.ts";
import type { NativeCodecParameters } from "./native-library.ts";

/** `AV_PKT_DATA_DISPLAYMATRIX`. */
const DISPLAY_MATRIX = 5;
/** Nine numbers of 32 bits. */
const DISPLAY_MATRIX_BYTES = 36;

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
