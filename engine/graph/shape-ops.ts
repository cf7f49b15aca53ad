/** Reshapes to sizes of which one is known at run time only, and the integers with which graphs compute sizes. */
import type { GraphBuilder } from "./graph-builder.ts";
import { nodeError } from "./node-checks.ts";
import { reshape } from "./standard-ops.ts";
import { describeShape, type Shape, type Value } from "./value.ts";

/** `input` in another shape. The number of elements determines the size that has a name, if there is one. */
export function reshapeTo(graph: GraphBuilder, name: string, input: Value, shape: Shape): Value {
  const sizes = shape.map((dimension) => (typeof dimension === "number" ? dimension : -1));
  if (sizes.filter((size) => size === -1).length > 1) {
    throw nodeError({ name, operator: "Reshape" }, `${describeShape(shape)} has several sizes that are not known.`);
  }
  return reshape(graph, name, input, int64Vector(graph, ...sizes), shape);
}

/** int64 []. */
export function int64Scalar(graph: GraphBuilder, value: number): Value {
  return graph.constant(`int64.scalar.${value}`, "int64", [], [value]);
}

/** int64 [values.length]. */
export function int64Vector(graph: GraphBuilder, ...values: readonly number[]): Value {
  return graph.constant(`int64.${values.join(".")}`, "int64", [values.length], values);
}
