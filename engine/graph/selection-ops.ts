/** Operators of the ONNX standard that compare, choose and look up, for the reference of paged attention. */
import type { GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, nodeError, type NodeLabel } from "./node-checks.ts";
import { int64Scalar, int64Vector } from "./shape-ops.ts";
import { addStandardNode } from "./standard-ops.ts";
import { broadcastShapes, describeValue, type Dimension, type Shape, type Value } from "./value.ts";

/** bool, `left < right`, broadcast. */
export function less(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return comparison(graph, { name, operator: "Less" }, left, right);
}

export function lessOrEqual(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return comparison(graph, { name, operator: "LessOrEqual" }, left, right);
}

export function greaterOrEqual(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return comparison(graph, { name, operator: "GreaterOrEqual" }, left, right);
}

export function equal(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return comparison(graph, { name, operator: "Equal" }, left, right);
}

export function and(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return connective(graph, { name, operator: "And" }, left, right);
}

export function or(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return connective(graph, { name, operator: "Or" }, left, right);
}

function connective(graph: GraphBuilder, node: NodeLabel, left: Value, right: Value): Value {
  checkElementType(node, left, "bool");
  return comparison(graph, node, left, right);
}

function comparison(graph: GraphBuilder, node: NodeLabel, left: Value, right: Value): Value {
  checkElementType(node, right, left.elementType);
  return addStandardNode(graph, node, [left, right], { elementType: "bool", shape: broadcast(node, left, right) });
}

/** The larger of two numbers, broadcast. */
export function maximum(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return choice(graph, { name, operator: "Max" }, left, right);
}

/** The smaller of two numbers, broadcast. */
export function minimum(graph: GraphBuilder, name: string, left: Value, right: Value): Value {
  return choice(graph, { name, operator: "Min" }, left, right);
}

function choice(graph: GraphBuilder, node: NodeLabel, left: Value, right: Value): Value {
  checkElementType(node, right, left.elementType);
  const shape = broadcast(node, left, right);
  return addStandardNode(graph, node, [left, right], { elementType: left.elementType, shape });
}

/** `condition ? chosen : other`, element by element, broadcast. */
export function where(
  graph: GraphBuilder,
  name: string,
  { condition, chosen, other }: { readonly condition: Value; readonly chosen: Value; readonly other: Value },
): Value {
  const node = { name, operator: "Where" };
  checkElementType(node, condition, "bool");
  checkElementType(node, other, chosen.elementType);
  const shape = broadcastShapes(condition.shape, broadcast(node, chosen, other));
  if (shape === null)
    throw nodeError(node, `${describeValue(condition)} and ${describeValue(chosen)} do not broadcast.`);
  return addStandardNode(graph, node, [condition, chosen, other], { elementType: chosen.elementType, shape });
}

function broadcast(node: NodeLabel, left: Value, right: Value): Shape {
  const shape = broadcastShapes(left.shape, right.shape);
  if (shape === null) throw nodeError(node, `${describeValue(left)} and ${describeValue(right)} do not broadcast.`);
  return shape;
}

/** int64 [rank of input, count]: coordinates of the elements that are true, in row-major order. */
export function nonZero(graph: GraphBuilder, name: string, input: Value, count: Dimension): Value {
  const node = { name, operator: "NonZero" };
  checkElementType(node, input, "bool");
  return addStandardNode(graph, node, [input], { elementType: "int64", shape: [input.shape.length, count] });
}

/** `data[n, indices[n, k]]` for `data` [N, C] and `indices` [N, K]: [N, K]. */
export function gatherElements(graph: GraphBuilder, name: string, data: Value, indices: Value): Value {
  const node = { name, operator: "GatherElements" };
  checkElementType(node, indices, "int32", "int64");
  checkRank(node, data, 2);
  checkShape(node, indices, [data.shape[0]!, indices.shape[1]!]);
  const result = { elementType: data.elementType, shape: indices.shape };
  return addStandardNode(graph, node, [data, indices], result, { axis: { kind: "int", value: 1 } });
}

/** `data[indices[n, 0], indices[n, 1], ...]` for `indices` int64 [N, axes]: [N, ...the other axes of data]. */
export function gatherAt(graph: GraphBuilder, name: string, data: Value, indices: Value): Value {
  const node = { name, operator: "GatherND" };
  const numAxes = checkCoordinates(node, data, indices);
  const shape = [indices.shape[0]!, ...data.shape.slice(numAxes)];
  return addStandardNode(graph, node, [data, indices], { elementType: data.elementType, shape });
}

/** A copy of `data` in which `data[indices[n, 0], indices[n, 1], ...]` is `updates[n]`; in place if bound to `data`. */
export function scatterAt(
  graph: GraphBuilder,
  name: string,
  { data, indices, updates }: { readonly data: Value; readonly indices: Value; readonly updates: Value },
): Value {
  const node = { name, operator: "ScatterND" };
  const numAxes = checkCoordinates(node, data, indices);
  checkElementType(node, updates, data.elementType);
  checkShape(node, updates, [indices.shape[0]!, ...data.shape.slice(numAxes)]);
  return addStandardNode(graph, node, [data, indices, updates], data);
}

function checkCoordinates(node: NodeLabel, data: Value, indices: Value): number {
  checkElementType(node, indices, "int64");
  checkRank(node, indices, 2);
  const numAxes = indices.shape[1];
  if (typeof numAxes !== "number" || numAxes > data.shape.length) {
    throw nodeError(node, `${describeValue(indices)} does not address ${describeValue(data)}.`);
  }
  return numAxes;
}

/** Sums of the first 1, 2, ... elements of `input` [N]. */
export function cumulativeSum(graph: GraphBuilder, name: string, input: Value): Value {
  const node = { name, operator: "CumSum" };
  checkRank(node, input, 1);
  return addStandardNode(graph, node, [input, int64Scalar(graph, 0)], input);
}

/** Sum along the last axis, which is removed. */
export function sumLast(graph: GraphBuilder, name: string, input: Value): Value {
  const axes = int64Vector(graph, -1);
  const result = { elementType: input.elementType, shape: input.shape.slice(0, -1) };
  const attributes = { keepdims: { kind: "int", value: 0 } } as const;
  return addStandardNode(graph, { name, operator: "ReduceSum" }, [input, axes], result, attributes);
}

/** Rows from `start` on, up to `end`, which counts from the back if negative; `size` is the number of rows left. */
export function sliceRows(
  graph: GraphBuilder,
  name: string,
  input: Value,
  { start, end, size }: { readonly start: number; readonly end: number; readonly size: Dimension },
): Value {
  const bounds = [start, end, 0].map((value) => int64Vector(graph, value));
  const shape = input.shape.with(0, size);
  return addStandardNode(graph, { name, operator: "Slice" }, [input, ...bounds], { ...input, shape });
}

/** The rows of `input` [N, ...] from `start` int64 [1] on; `size` is their number. */
export function sliceFrom(graph: GraphBuilder, name: string, input: Value, start: Value, size: Dimension): Value {
  const node = { name, operator: "Slice" };
  checkElementType(node, start, "int64");
  checkShape(node, start, [1]);
  const beyondAny = 2 ** 31;
  const end = int64Vector(graph, beyondAny);
  const axis = int64Vector(graph, 0);
  return addStandardNode(graph, node, [input, start, end, axis], { ...input, shape: input.shape.with(0, size) });
}

/**
 * The part of `input` between the corners `starts` and `ends` (exclusive), int64 [rank] each, which runs may set;
 * `shape` is its shape.
 */
export function sliceBetween(
  graph: GraphBuilder,
  name: string,
  input: Value,
  { starts, ends, shape }: { readonly starts: Value; readonly ends: Value; readonly shape: Shape },
): Value {
  const node = { name, operator: "Slice" };
  for (const corner of [starts, ends]) {
    checkElementType(node, corner, "int64");
    checkShape(node, corner, [input.shape.length]);
  }
  return addStandardNode(graph, node, [input, starts, ends], { elementType: input.elementType, shape });
}

/**
 * A copy of `data` in which `updates[i, j, ...]` is written at `[indices[i, j, ...], j, ...]`; the same memory if bound
 * so. `indices` int32 or int64 has the shape of `updates`, which may be smaller than `data` along every axis.
 */
export function scatterAlongFirstAxis(
  graph: GraphBuilder,
  name: string,
  { data, indices, updates }: { readonly data: Value; readonly indices: Value; readonly updates: Value },
): Value {
  const node = { name, operator: "ScatterElements" };
  checkElementType(node, indices, "int32", "int64");
  checkElementType(node, updates, data.elementType);
  checkShape(node, indices, updates.shape);
  return addStandardNode(graph, node, [data, indices, updates], data, { axis: { kind: "int", value: 0 } });
}
