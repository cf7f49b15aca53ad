/** The quarter turns and mirrorings that pictures ask for. */

/** Where the shown pixel (x, y) is stored: columns are x or y, forwards or backwards. */
export interface Orientation {
  /** Whether rows are shown as columns. */
  readonly swapsAxes: boolean;
  /** In stored pixels. */
  readonly mirrorsColumns: boolean;
  readonly mirrorsRows: boolean;
}

export const upright: Orientation = { swapsAxes: false, mirrorsColumns: false, mirrorsRows: false };

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
