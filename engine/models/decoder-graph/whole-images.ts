/** Where the image of a token ends, for decoders in which the tokens of an image see each other. */
import { and, equal, less, sumLast } from "../../graph/selection-ops.ts";
import { int64Scalar, int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { cast, concat, gatherRows, range, shapeOf, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { oneMoreImageToken } from "./sizes.ts";

/** Follows no row of a run. */
const LONE_ROW = 2 ** 40;

/**
 * Appends a number to int64 [M]. Operators that reduce an axis and those of attention do not accept empty ones, and a
 * run without images has no image token.
 */
export function withOneMore({ graph }: GraphContext, name: string, values: Value, value: number): Value {
  const one = int64Vector(graph, value);
  return concat(graph, name, [values, one], 0, oneMoreImageToken);
}

/**
 * int64 [M + 1]: the number of tokens of the same image that follow each image token; 0 for the one more.
 *
 * @param rows int64 [M], ascending: the image tokens among the run's N. Neighbours belong to one image.
 * @param sequences int64 [M + 1]: the sequence of each; null if there is only one.
 */
export function numLaterImageTokens(context: GraphContext, rows: Value, sequences: Value | null): Value {
  const { graph } = context;
  const column = (name: string, values: Value): Value =>
    reshapeTo(graph, `${name}.column`, values, [oneMoreImageToken, 1]);
  const padded = withOneMore(context, "image_tokens.rows_and_one", rows, LONE_ROW);
  const zero = int64Scalar(graph, 0);
  const count = gatherRows(graph, "image_tokens.count", shapeOf(graph, "image_tokens.shape", padded), zero);
  const index = range(graph, "image_tokens.index", count, oneMoreImageToken);
  // The same for consecutive rows.
  const run = subtract(graph, "image_tokens.run", padded, index);
  const isSame = equal(graph, "image_tokens.is_same", column("image_tokens.run", run), run);
  const isLater = less(graph, "image_tokens.is_later", column("image_tokens.index", index), index);
  let counted = and(graph, "image_tokens.is_later_same", isSame, isLater);
  if (sequences !== null) {
    const own = equal(graph, "image_tokens.is_own", column("image_tokens.sequence", sequences), sequences);
    counted = and(graph, "image_tokens.is_later_own", counted, own);
  }
  return sumLast(graph, "image_tokens.num_later", cast(graph, "image_tokens.counted", counted, "int64"));
}
