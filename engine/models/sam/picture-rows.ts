/** Rows of several pictures of one size: patches, or places of a grid. */
import { concat, expand, reshape, shapeOf } from "../../graph/standard-ops.ts";
import { sameShape, type Dimension, type Shape, type Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";

/** The size of `count` rows for each of `pictures`. */
export function times(pictures: Dimension, count: number): Dimension {
  return typeof pictures === "number" ? pictures * count : `${pictures} * ${count}`;
}

/** A value whose first size may be known at run time only, in another shape; the other sizes are known. */
export function inShape({ graph }: GraphContext, name: string, input: Value, shape: Shape): Value {
  const [, ...known] = shape.map(Number);
  const target = graph.constant(`any_by.${known.join(".")}`, "int64", [shape.length], [-1, ...known]);
  return reshape(graph, name, input, target, shape);
}

/** [pictures, rows, width] as [pictures * rows, width], for linear layers. */
export function joinRows(context: GraphContext, name: string, input: Value): Value {
  const [pictures, rows, width] = input.shape as readonly [Dimension, number, number];
  return inShape(context, name, input, [times(pictures, rows), width]);
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
  const rest = graph.constant(`int64.${sizes.join(".")}`, "int64", [sizes.length], sizes);
  const target = concat(graph, `${name}.shape`, [shapeOf(graph, `${name}.pictures`, like, 1), rest], 0);
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
