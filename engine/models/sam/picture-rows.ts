/** Rows of several pictures of one size: patches, or places of a grid. */
import { int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { concat, expand, shapeOf } from "../../graph/standard-ops.ts";
import { sameShape, type Dimension, type Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";

/** The size of `count` rows for each of `pictures`. */
export function times(pictures: Dimension, count: number): Dimension {
  return typeof pictures === "number" ? pictures * count : `${pictures} * ${count}`;
}

/** [pictures, rows, width] as [pictures * rows, width], for linear layers. */
export function joinRows(context: GraphContext, name: string, input: Value): Value {
  const [pictures, rows, width] = input.shape as readonly [Dimension, number, number];
  return reshapeTo(context.graph, name, input, [times(pictures, rows), width]);
}

/**
 * A parameter [1, ...] for each of the pictures that `like` [pictures, ...] has: [pictures, ...sizes].
 *
 * @param sizes The parameter's own by default; otherwise each is its own, or it repeats one of 1.
 */
export function forEachPicture(
  { graph }: GraphContext,
  name: string,
  parameter: Value,
  like: Value,
  sizes: readonly number[] = parameter.shape.slice(1).map(Number),
): Value {
  const [pictures] = like.shape;
  const shape = [pictures!, ...sizes];
  if (sameShape(parameter.shape, shape)) return parameter;
  const numPictures = shapeOf(graph, `${name}.pictures`, like, 1);
  const target = concat(graph, `${name}.shape`, [numPictures, int64Vector(graph, ...sizes)], 0);
  return expand(graph, name, parameter, target, shape);
}

/**
 * Each picture with one more row behind its own: [pictures, rows + 1, width].
 *
 * @param row [1, 1, width].
 */
export function withRow(context: GraphContext, name: string, input: Value, row: Value): Value {
  return concat(context.graph, name, [input, forEachPicture(context, `${name}.row`, row, input)], 1);
}

/** Zeros in the activations' type. */
export function zeros({ graph, precision }: GraphContext, shape: readonly number[]): Value {
  const size = shape.reduce((product, dimension) => product * dimension, 1);
  return graph.constant(`zeros.${shape.join(".")}`, precision.activations, shape, new Float32Array(size));
}
