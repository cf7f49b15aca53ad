/** Rotary embedding of patches by their row and column. */
import type { RotaryTables } from "../../graph/contrib-ops.ts";
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import {
  add,
  cast,
  concat,
  cosine,
  divide,
  gatherRows,
  modulo,
  multiply,
  range,
  shapeOf,
  sine,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";

export const patches = "numPatches";

export interface PatchRotary extends RotaryTables {
  /** int64 [1, numPatches]: each patch has its own rows in the tables. */
  readonly positions: Value;
  /** int64 [numPatches]: row and column of each patch in the picture. */
  readonly row: Value;
  readonly column: Value;
}

export interface PatchRotaryConfig {
  /** Width of the tower. */
  readonly embedDim: number;
  readonly numHeads: number;
  /** Side of the squares of patches that become one embedding. */
  readonly mergeSize: number;
  readonly ropeTheta: number;
  /**
   * Whether rows and columns take turns in the frequencies of a whole head. By default both have the same frequencies,
   * those of half of a head.
   */
  readonly alternatesFrequencies?: boolean;
}

/**
 * int64 [numPatches] each: a number for every patch of a picture, and its row and column.
 *
 * @param of.pixels [numPatches, features], square by square.
 * @param of.grid int64 [1, 3]: 1, rows and columns of patches.
 */
export function patchPlaces(
  { graph }: GraphContext,
  of: { readonly mergeSize: number; readonly pixels: Value; readonly grid: Value },
): { readonly index: Value; readonly row: Value; readonly column: Value } {
  const { mergeSize, pixels, grid } = of;
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const flatGrid = reshapeTo(graph, "grid.flat", grid, [3]);
  const numColumns = gatherRows(graph, "grid.columns", flatGrid, scalar(2));
  const numPatches = gatherRows(graph, "patches.count", shapeOf(graph, "patches.shape", pixels, 1), scalar(0));
  const index = range(graph, "patch", numPatches, patches);
  return { index, ...placesInSquares(graph, "patch", { index, numColumns, mergeSize }) };
}

/** Angles of each patch: half of the frequencies rotate with its row, half with its column. */
export function createPatchRotary(
  context: GraphContext,
  { embedDim, numHeads, mergeSize, ropeTheta, alternatesFrequencies = false }: PatchRotaryConfig,
  pixels: Value,
  grid: Value,
): PatchRotary {
  const { graph, precision } = context;
  const { index, row, column } = patchPlaces(context, { mergeSize, pixels, grid });

  const numFrequencies = embedDim / numHeads / 4;
  const frequencyRow = (name: string, offset: number): Value => {
    const frequencies = new Float32Array(numFrequencies).map(
      (_, frequency) => 1 / Math.fround(ropeTheta ** ((frequency + offset) / numFrequencies)),
    );
    return graph.constant(name, "float32", [1, numFrequencies], frequencies);
  };
  const rowFrequencies = frequencyRow("vision.frequencies", 0);
  const columnFrequencies = alternatesFrequencies ? frequencyRow("vision.column_frequencies", 0.5) : rowFrequencies;
  const anglesOf = (name: string, position: Value, frequencies: Value): Value => {
    const positions = cast(graph, `${name}.float`, position, "float32");
    const asColumn = reshapeTo(graph, `${name}.column`, positions, [patches, 1]);
    return multiply(graph, `${name}.angles`, asColumn, frequencies);
  };
  const halves = [anglesOf("rows", row, rowFrequencies), anglesOf("columns", column, columnFrequencies)];
  const angles = concat(graph, "angles", halves, 1);
  return {
    cosCache: cast(graph, "angles.cos.cast", cosine(graph, "angles.cos", angles), precision.activations),
    sinCache: cast(graph, "angles.sin.cast", sine(graph, "angles.sin", angles), precision.activations),
    row,
    column,
    positions: reshapeTo(graph, "patch.own_row", index, [1, patches]),
  };
}

/**
 * int64 [n] each: row and column of the patches with these indices, if patches are numbered square by square and row by
 * row inside of a square.
 *
 * @param prefix Of the values' names.
 */
export function placesInSquares(
  graph: GraphBuilder,
  prefix: string,
  { index, numColumns, mergeSize }: { readonly index: Value; readonly numColumns: Value; readonly mergeSize: number },
): { readonly row: Value; readonly column: Value } {
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const squareSize = scalar(mergeSize * mergeSize);
  const side = scalar(mergeSize);
  const squaresPerRow = divide(graph, `${prefix}.squares_per_row`, numColumns, side);
  const square = divide(graph, `${prefix}.square`, index, squareSize);
  const inner = modulo(graph, `${prefix}.inner`, index, squareSize);
  const axis = (name: string, outer: Value, within: Value): Value =>
    add(graph, `${prefix}.${name}`, multiply(graph, `${prefix}.${name}.first`, outer, side), within);
  return {
    row: axis(
      "row",
      divide(graph, `${prefix}.square.row`, square, squaresPerRow),
      divide(graph, `${prefix}.inner.row`, inner, side),
    ),
    column: axis(
      "column",
      modulo(graph, `${prefix}.square.column`, square, squaresPerRow),
      modulo(graph, `${prefix}.inner.column`, inner, side),
    ),
  };
}
