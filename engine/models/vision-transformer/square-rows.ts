/** The patches of each square as one row, as a convolution over squares reads them. */
import { reshape, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";

/**
 * @param hidden [numPatches, size], the patches of a square one after the other.
 * @returns [numSquares, size * patchesPerSquare]: feature by feature, and for each feature patch by patch.
 */
export function squareRows(
  { graph }: GraphContext,
  hidden: Value,
  { size, patchesPerSquare }: { readonly size: number; readonly patchesPerSquare: number },
): Value {
  const squares = "numSquares";
  const squareTarget = graph.constant("merger.square_shape", "int64", [3], [-1, patchesPerSquare, size]);
  const bySquare = reshape(graph, "merger.squares", hidden, squareTarget, [squares, patchesPerSquare, size]);
  const byFeature = transpose(graph, "merger.features", bySquare, [0, 2, 1]);
  const width = patchesPerSquare * size;
  const flatTarget = graph.constant("merger.flat_shape", "int64", [2], [-1, width]);
  return reshape(graph, "merger.flat", byFeature, flatTarget, [squares, width]);
}
