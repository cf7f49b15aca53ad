/** Learned positions of a square table, resized to the rows and columns of a picture's patches. */
import { maximum, sumLast } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { abs, add, cast, divide, gemm, multiply, range, relu, subtract, transpose } from "../../graph/standard-ops.ts";
import type { Dimension, Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { placesInSquares } from "../patches/patch-rotary.ts";

/** A grid of patches whose sizes a run knows. */
export interface ComputedGrid {
  /** int64 [] each: rows and columns of patches, and their product. */
  readonly rows: Value;
  readonly columns: Value;
  readonly numPatches: Value;
  /** Name of `numPatches` as a size. */
  readonly size: Dimension;
  /** Patches are numbered square by square, and row by row inside of a square with this side. */
  readonly mergeSize: number;
}

/**
 * Bilinear interpolation by the centres of patches. Where there are fewer patches than positions, each patch averages the
 * positions that it covers, with weights that fall from its centre (antialiasing, as in PyTorch).
 *
 * @param table [side * side, hiddenSize], row by row.
 * @returns [numPatches, hiddenSize].
 */
export function interpolatedPositions(
  { graph, precision }: GraphContext,
  name: string,
  table: Value,
  { rows, columns, numPatches, size, mergeSize }: ComputedGrid,
): Value {
  const numPositions = Number(table.shape[0]);
  const side = Math.sqrt(numPositions);
  const scalar = (value: number): Value => graph.constant(`float32.scalar.${value}`, "float32", [], [value]);
  const asColumn = (of: string, value: Value): Value => reshapeTo(graph, `${of}.column`, value, [size, 1]);
  const centres = graph.constant(
    `positions.centres.${side}`,
    "float32",
    [side],
    Array.from({ length: side }, (_, index) => index + 0.5),
  );
  /** float32 [numPatches, side]: shares of the table's lines in each patch's position. */
  const shares = (axis: string, place: Value, numLines: Value): Value => {
    const of = `${name}.${axis}`;
    const scale = divide(graph, `${of}.scale`, scalar(side), cast(graph, `${of}.lines`, numLines, "float32"));
    const middle = add(graph, `${of}.middle`, cast(graph, `${of}.place`, place, "float32"), scalar(0.5));
    const centre = multiply(graph, `${of}.centre`, asColumn(`${of}.middle`, middle), scale);
    const distance = abs(graph, `${of}.distance`, subtract(graph, `${of}.offset`, centres, centre));
    const reach = maximum(graph, `${of}.reach`, scale, scalar(1));
    const relative = divide(graph, `${of}.relative`, distance, reach);
    const weights = relu(graph, `${of}.weights`, subtract(graph, `${of}.nearness`, scalar(1), relative));
    return divide(graph, `${of}.shares`, weights, asColumn(`${of}.sum`, sumLast(graph, `${of}.sum`, weights)));
  };
  const index = range(graph, `${name}.index`, numPatches, size);
  const places = placesInSquares(graph, name, { index, numColumns: columns, mergeSize });
  const byRow = reshapeTo(graph, `${name}.by_row`, shares("rows", places.row, rows), [size, side, 1]);
  const byColumn = reshapeTo(graph, `${name}.by_column`, shares("columns", places.column, columns), [size, 1, side]);
  const products = multiply(graph, `${name}.products`, byRow, byColumn);
  const ofTable = reshapeTo(graph, `${name}.of_table`, products, [size, numPositions]);
  const byFeature = transpose(graph, `${name}.by_feature`, cast(graph, `${name}.table`, table, "float32"), [1, 0]);
  const positions = gemm(graph, `${name}.sum`, ofTable, byFeature, null);
  return cast(graph, name, positions, precision.activations);
}
