/** SAM's attention: scores depend on the distance of two patches in rows and in columns. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { concat, gatherRows, matMul, multiply, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { forEachPicture, zeros } from "./picture-rows.ts";
import { resizeLine } from "./resized-tables.ts";

/** Kernels read heads in vectors of this many numbers. */
const HEAD_MULTIPLE = 8;

export interface RelativeAttentionOptions {
  /** Tensors `rel_pos_h` and `rel_pos_w` below it, [2 * tableSide - 1, headDim] each. */
  readonly name: string;
  readonly numHeads: number;
  /** Side of a square of patches that see each other. */
  readonly side: number;
  /** Side of the squares for which distances are stored; others get them resized. */
  readonly tableSide: number;
}

/**
 * Attention within squares of patches. The score of query q in row r for key k is `q * k / sqrt(headDim)`, and `q` times
 * the learned vectors of both distances. These products, one for each row and column of keys, are written behind the
 * query's own numbers, and behind those of a key ones in the places of its row and column. So the product of the longer
 * heads is the whole score, and no kernel has to hold a score for every pair of patches.
 *
 * @param query float [squares, side * side, numHeads * headDim], as are the others and the result.
 */
export function relativeAttention(
  context: GraphContext,
  { query, key, value }: { readonly query: Value; readonly key: Value; readonly value: Value },
  options: RelativeAttentionOptions,
): Value {
  const { graph, precision } = context;
  const { name, numHeads, side } = options;
  const [squares, , width] = query.shape;
  const headDim = Number(width) / numHeads;
  const padding = -(headDim + 2 * side) & (HEAD_MULTIPLE - 1);
  const longDim = headDim + 2 * side + padding;
  const numPatches = side ** 2;
  const inHeads = (part: string, rows: Value, features: number): Value =>
    reshapeTo(graph, `${name}.${part}.heads`, rows, [squares!, numPatches, numHeads, features]);
  const joined = (part: string, parts: readonly Value[]): Value =>
    reshapeTo(graph, `${name}.${part}.long`, concat(graph, `${name}.${part}.joined`, parts, 3), [
      squares!,
      numPatches,
      numHeads * longDim,
    ]);

  const ofRows = matMul(
    graph,
    `${name}.of_rows`,
    reshapeTo(graph, `${name}.query.rows`, query, [squares!, side, side * numHeads, headDim]),
    distanceVectors(context, `${name}.rel_pos_h`, headDim, options, 0),
  );
  const turned = (part: string, input: Value, features: number): Value =>
    transpose(
      graph,
      `${name}.${part}.turned`,
      reshapeTo(graph, `${name}.${part}.square`, input, [squares!, side, side, numHeads * features]),
      [0, 2, 1, 3],
    );
  const byColumn = turned("query", query, headDim);
  const ofColumns = matMul(
    graph,
    `${name}.of_columns`,
    reshapeTo(graph, `${name}.query.columns`, byColumn, [squares!, side, side * numHeads, headDim]),
    distanceVectors(context, `${name}.rel_pos_w`, headDim, options, padding),
  );
  const scale = graph.constant(`attention.scale.${headDim}`, precision.activations, [1], [headDim ** -0.5]);
  const longQuery = joined("query", [
    inHeads("query.scaled", multiply(graph, `${name}.query.scaled`, query, scale), headDim),
    inHeads("of_rows", ofRows, side),
    inHeads("of_columns", turned("of_columns", ofColumns, side + padding), side + padding),
  ]);
  const longKey = joined("key", [inHeads("key", key, headDim), ...placeMarks(context, key, options, padding)]);
  return multiHeadAttention(graph, name, { query: longQuery, key: longKey, value, numHeads, scale: 1 });
}

/**
 * For each place of a query in a line the vectors of the distances to all keys of the line, and `padding` zeros:
 * [side, headDim, side + padding].
 */
function distanceVectors(
  context: GraphContext,
  name: string,
  headDim: number,
  { side, tableSide }: RelativeAttentionOptions,
  padding: number,
): Value {
  const { graph } = context;
  const stored = parameter(context, name, [2 * tableSide - 1, headDim]);
  const resized = resizeLine(context, `${name}.resized`, stored, 2 * side - 1);
  const table = padding === 0 ? resized : concat(graph, `${name}.padded`, [resized, zeros(context, [1, headDim])], 0);
  const lengths = Array.from({ length: side }, (_, query) =>
    Array.from({ length: side + padding }, (_, key) => (key < side ? query - key + side - 1 : 2 * side - 1)),
  );
  const shape = [side, side + padding];
  const indices = graph.constant(`distances.${side}.${padding}`, "int32", shape, lengths.flat());
  const vectors = gatherRows(graph, `${name}.vectors`, table, indices);
  return transpose(graph, `${name}.by_place`, vectors, [0, 2, 1]);
}

/** For each key ones in the places of its row and its column: twice [squares, side * side, numHeads, places]. */
function placeMarks(
  context: GraphContext,
  key: Value,
  { name, side, numHeads }: RelativeAttentionOptions,
  padding: number,
): Value[] {
  const { graph, precision } = context;
  const [squares] = key.shape;
  const marks = (part: string, width: number, shape: readonly number[]): Value => {
    const ones = Float32Array.from({ length: side * width }, (_, index) =>
      Number(Math.floor(index / width) === index % width),
    );
    const ofLine = graph.constant(`place_marks.${part}.${side}.${width}`, precision.activations, shape, ones);
    const sizes = [side, side, numHeads, width];
    const ofKeys = forEachPicture(context, `${name}.key.${part}`, ofLine, key, sizes);
    return reshapeTo(graph, `${name}.key.${part}.heads`, ofKeys, [squares!, side ** 2, numHeads, width]);
  };
  return [marks("row", side, [1, side, 1, 1, side]), marks("column", side + padding, [1, 1, side, 1, side + padding])];
}
