/** Puts squares of patches into one row each, so that a picture has fewer and wider embeddings. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";

/**
 * @param hidden [pictures * side * side, hiddenSize], row by row of patches.
 * @param shape `side`: patches per side of a picture, a multiple of `square`, the side of a square in patches.
 * @param names For graphs with several: a prefix of the values' names, and the name of the number of resulting rows.
 * @returns [pictures * (side / square)^2, square * square * hiddenSize], row by row of squares, the patches of a square
 *   row by row.
 */
export function shufflePixels(
  { graph }: GraphContext,
  hidden: Value,
  { side, square, hiddenSize }: { readonly side: number; readonly square: number; readonly hiddenSize: number },
  { name, rows }: { readonly name: string; readonly rows: string } = { name: "shuffle", rows: "numEmbeddings" },
): Value {
  const squaresPerSide = side / square;
  const gridShape = [squaresPerSide, square, squaresPerSide, square, hiddenSize];
  const grid = reshapeTo(graph, `${name}.grid`, hidden, ["numPictures", ...gridShape]);
  const squares = transpose(graph, `${name}.squares`, grid, [0, 1, 3, 2, 4, 5]);
  const squareFeatures = square * square * hiddenSize;
  return reshapeTo(graph, `${name}.flat`, squares, [rows, squareFeatures]);
}
