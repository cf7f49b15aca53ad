/** Square windows of a grid of patches, between which there is no attention. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { gatherColumns } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { times, withRow } from "./picture-rows.ts";

export interface WindowGrid {
  /** Side of the picture, in patches. */
  readonly side: number;
  /** Side of a window, in patches. */
  readonly windowSide: number;
}

function windowsPerSide({ side, windowSide }: WindowGrid): number {
  return Math.ceil(side / windowSide);
}

/**
 * Windows that reach beyond the picture have `absent` in their other places, which takes part in attention.
 *
 * @param patches [pictures, side * side, width], row by row.
 * @param absent [1, 1, width].
 * @returns [pictures * windows, windowSide * windowSide, width].
 */
export function intoWindows(
  context: GraphContext,
  name: string,
  patches: Value,
  grid: WindowGrid,
  absent: Value,
): Value {
  const { side, windowSide } = grid;
  const [pictures, , width] = patches.shape;
  const perSide = windowsPerSide(grid);
  const places = placesOfWindows(grid);
  const key = `windows.${side}.${windowSide}`;
  const indices = context.graph.constant(`${key}.places`, "int32", [places.length], places);
  const isCovered = perSide * windowSide === side;
  const bordered = isCovered ? patches : withRow(context, `${name}.bordered`, patches, absent);
  const ordered = gatherColumns(context.graph, `${name}.ordered`, bordered, indices);
  return reshapeTo(context.graph, `${name}.windows`, ordered, [
    times(pictures!, perSide ** 2),
    windowSide ** 2,
    width!,
  ]);
}

/**
 * @param windows [pictures * windows, windowSide * windowSide, width].
 * @param like A value of as many pictures.
 * @returns [pictures, side * side, width].
 */
export function outOfWindows(
  context: GraphContext,
  name: string,
  windows: Value,
  grid: WindowGrid,
  like: Value,
): Value {
  const { side, windowSide } = grid;
  const [pictures] = like.shape;
  const width = windows.shape[2]!;
  const numPlaces = (windowsPerSide(grid) * windowSide) ** 2;
  const placeOfPatch: number[] = [];
  for (const [place, patch] of placesOfWindows(grid).entries()) if (patch < side ** 2) placeOfPatch[patch] = place;
  const key = `windows.${side}.${windowSide}`;
  const indices = context.graph.constant(`${key}.patches`, "int32", [side ** 2], placeOfPatch);
  const joined = reshapeTo(context.graph, `${name}.places`, windows, [pictures!, numPlaces, width]);
  return gatherColumns(context.graph, `${name}.patches`, joined, indices);
}

/** The patch in each place, window after window; the number of patches where there is none. */
function placesOfWindows(grid: WindowGrid): number[] {
  const { side, windowSide } = grid;
  const lines = Array.from({ length: windowsPerSide(grid) }, (_, window) =>
    Array.from({ length: windowSide }, (_, line) => window * windowSide + line),
  );
  return lines.flatMap((rows) =>
    lines.flatMap((columns) =>
      rows.flatMap((row) => columns.map((column) => (row < side && column < side ? row * side + column : side ** 2))),
    ),
  );
}
