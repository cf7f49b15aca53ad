/** Positions of MiniCPM-V 4.7: a picture and its slices lie on one canvas, at one point of the text. */
import type { PlaceholderRange } from "../../multimodal/placeholder.ts";
import type { PromptPositions } from "../../multimodal/prompt-positions.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import type { PatchGrid } from "./patches.ts";

export interface CanvasPicture {
  readonly placeholder: PlaceholderRange;
  /** Embeddings of the whole picture. */
  readonly whole: PatchGrid;
  /** Slices, and embeddings of each; null if the picture is not cut. */
  readonly slices: (PatchGrid & { readonly each: PatchGrid }) | null;
}

/**
 * Equals transformers' `get_rope_index` for still pictures. All tokens of a picture, its markers and the markers that
 * follow it share one temporal position. A slice has the positions of its place on the canvas of all slices, over which
 * the whole picture is stretched; its markers have those of its first and last corner. The text continues after the longer
 * side of the canvas.
 *
 * @param pictures In the order of the prompt.
 * @param markerIds Tokens that belong to a picture if they follow it.
 */
export function canvasPositions(
  tokenIds: readonly number[],
  pictures: readonly CanvasPicture[],
  markerIds: ReadonlySet<number>,
): PromptPositions {
  const numTokens = tokenIds.length;
  const axes = new Int32Array(3 * numTokens);
  let last = 0;
  const place = (token: number, temporal: number, height: number, width: number): void => {
    axes[token] = temporal;
    axes[numTokens + token] = height;
    axes[2 * numTokens + token] = width;
    last = Math.max(last, temporal, height, width);
  };
  /** The first token without a position, and the position of text there. */
  let token = 0;
  let next = 0;
  const placeTextUpTo = (end: number): void => {
    for (; token < end; token++, next++) place(token, next, next, next);
  };
  for (const { placeholder, whole, slices } of pictures) {
    const [thumbnail, ...crops] = embeddedRuns(placeholder) as [Run, ...Run[]];
    placeTextUpTo(thumbnail.start - 1);
    const origin = next;
    const canvas = slices === null ? whole : onCanvas(slices, slices.each);
    const at = (index: number, row: number, column: number): void =>
      place(index, origin, origin + row, origin + column);
    let end = crops.at(-1)?.end ?? thumbnail.end;
    for (; end < numTokens && markerIds.has(tokenIds[end]!); end++) at(end, 0, 0);

    const halo = origin === 0 ? 0 : -1;
    at(thumbnail.start - 1, halo, halo);
    const rows = stretched(whole.rows, canvas.rows);
    const columns = stretched(whole.columns, canvas.columns);
    for (let index = thumbnail.start; index < thumbnail.end; index++) {
      const inner = index - thumbnail.start;
      at(index, rows[Math.floor(inner / whole.columns)]!, columns[inner % whole.columns]!);
    }
    at(thumbnail.end, canvas.rows, canvas.columns);
    for (const [slice, crop] of crops.entries()) {
      const { columns: perRow, each } = slices!;
      const top = Math.floor(slice / perRow) * each.rows;
      const left = (slice % perRow) * each.columns;
      at(crop.start - 1, top, left);
      for (let index = crop.start; index < crop.end; index++) {
        const inner = index - crop.start;
        at(index, top + Math.floor(inner / each.columns), left + (inner % each.columns));
      }
      at(crop.end, top + each.rows - 1, left + each.columns - 1);
      // The line break behind a row of slices.
      const following = crops[slice + 1]?.start ?? 0;
      for (let index = crop.end + 1; index < following - 1; index++) at(index, top + each.rows - 1, canvas.columns);
    }
    token = end;
    next = origin + Math.max(canvas.rows, canvas.columns) + 1;
  }
  placeTextUpTo(numTokens);
  return { axes, next: last + 1 };
}

interface Run {
  readonly start: number;
  readonly end: number;
}

/** Where the embeddings of the whole picture and of each slice are: between markers, which have none. */
function embeddedRuns({ offset, length, isEmbed }: PlaceholderRange): Run[] {
  const runs: Run[] = [];
  let start: number | null = null;
  for (let index = 0; index <= length; index++) {
    const isInside = index < length && (isEmbed === null || isEmbed[index]!);
    if (isInside) start ??= index;
    else if (start !== null) {
      runs.push({ start: offset + start, end: offset + index });
      start = null;
    }
  }
  return runs;
}

function onCanvas({ rows, columns }: PatchGrid, each: PatchGrid): PatchGrid {
  return { rows: rows * each.rows, columns: columns * each.columns };
}

/** Places of rows that are spread evenly from the first to the last of the canvas: torch's `linspace`, rounded. */
function stretched(length: number, canvasLength: number): number[] {
  const step = length === 1 ? 0 : Math.fround((canvasLength - 1) / (length - 1));
  return Array.from({ length }, (_, index) => {
    const place =
      index < Math.floor(length / 2) || length === 1
        ? Math.fround(step * index)
        : Math.fround(canvasLength - 1 - Math.fround(step * (length - 1 - index)));
    return roundHalfToEven(place);
  });
}
