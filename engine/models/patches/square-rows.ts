/** The patches of each square as one row, as a convolution over squares reads them. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { transpose } from "../../graph/standard-ops.ts";
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
  const bySquare = reshapeTo(graph, "merger.squares", hidden, [squares, patchesPerSquare, size]);
  const byFeature = transpose(graph, "merger.features", bySquare, [0, 2, 1]);
  return reshapeTo(graph, "merger.flat", byFeature, [squares, patchesPerSquare * size]);
}
