/** Where the embeddings of a picture come from: rows of its tiles' features, in the order of the prompt. */
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import type { AnyresLayout, Grid } from "./anyres.ts";
import type { AnyresOptions } from "./image-options.ts";

/** Rows that are mixed for one embedding, if features are scaled. */
export const NUM_NEIGHBOURS = 4;

/**
 * `feature_rows` int64 [numEmbeddings], or with `mostTiles` [4, numEmbeddings] beside `feature_shares` float32 of the
 * same shape: the rows among the features of all tiles, tile after tile, behind which comes the row that ends a line.
 * The tile with the whole picture is the first.
 *
 * @param layout Null for a picture or a frame of a video that has only that tile.
 */
export function featureRows(layout: AnyresLayout | null, options: AnyresOptions): [string, ItemTensor][] {
  const { featuresPerSide: side, mostTiles } = options;
  const perTile = side ** 2;
  const numTiles = layout === null ? 1 : 1 + layout.tiles.rows * layout.tiles.columns;
  const lineEnd = numTiles * perTile;
  const isMixed = mostTiles !== null;
  const rows: number[][] = Array.from({ length: isMixed ? NUM_NEIGHBOURS : 1 }, () => []);
  const shares: number[][] = rows.map(() => []);
  const addOne = (row: number): void => {
    for (const [neighbour, list] of rows.entries()) {
      list.push(row);
      shares[neighbour]!.push(Number(neighbour === 0));
    }
  };

  const addScaled = (from: Grid, to: Grid, line: number, rowAt: (line: number, place: number) => number): void => {
    for (let place = 0; place < to.columns; place++) {
      let neighbour = 0;
      for (const vertical of between(line, to.rows, from.rows)) {
        for (const horizontal of between(place, to.columns, from.columns)) {
          rows[neighbour]!.push(rowAt(vertical.index, horizontal.index));
          shares[neighbour]!.push(vertical.share * horizontal.share);
          neighbour++;
        }
      }
    }
  };

  const { frame } = options;
  if (frame !== null) {
    const [from, to] = [side, frame.perSide].map((length) => ({ rows: length, columns: length })) as [Grid, Grid];
    for (let line = 0; line < to.rows; line++) addScaled(from, to, line, (y, x) => y * side + x);
    if (frame.isLast) addOne(lineEnd);
  } else {
    for (let row = 0; row < perTile; row++) addOne(row);
  }
  if (frame === null && layout === null) addOne(lineEnd);
  if (layout !== null) {
    const { window, scaled, tiles } = layout;
    const rowAt = (line: number, place: number): number => {
      const [y, x] = [window.top + line, window.left + place];
      const tile = 1 + Math.floor(y / side) * tiles.columns + Math.floor(x / side);
      return tile * perTile + (y % side) * side + (x % side);
    };
    const isScaled = scaled.rows !== window.rows || scaled.columns !== window.columns;
    for (let line = 0; line < scaled.rows; line++) {
      if (isScaled) addScaled(window, scaled, line, rowAt);
      else for (let place = 0; place < scaled.columns; place++) addOne(rowAt(line, place));
      addOne(lineEnd);
    }
  }

  const numEmbeddings = rows[0]!.length;
  const shape = isMixed ? [NUM_NEIGHBOURS, numEmbeddings] : [numEmbeddings];
  const flatRows = { elementType: "int64", shape, data: BigInt64Array.from(rows.flat(), BigInt) } as const;
  if (!isMixed) return [["feature_rows", flatRows]];
  const flatShares = { elementType: "float32", shape, data: Float32Array.from(shares.flat()) } as const;
  return [
    ["feature_rows", flatRows],
    ["feature_shares", flatShares],
  ];
}

interface Neighbour {
  readonly index: number;
  readonly share: number;
}

/** The two of `from` places around place `index` of `to`: bilinear, by the centres of the places. */
function between(index: number, to: number, from: number): readonly [Neighbour, Neighbour] {
  const place = Math.max(((index + 0.5) * from) / to - 0.5, 0);
  const before = Math.floor(place);
  const share = place - before;
  return [
    { index: before, share: 1 - share },
    { index: Math.min(before + 1, from - 1), share },
  ];
}
