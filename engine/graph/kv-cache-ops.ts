/** Operators that write and read a KV cache of integers, beside attention itself. */
import type { GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape } from "./node-checks.ts";
import { onnxDataTypes } from "./onnx-schema.ts";
import { int64Vector } from "./shape-ops.ts";
import { addStandardNode, divide } from "./standard-ops.ts";
import type { Dimension, Value } from "./value.ts";

/**
 * int8 `round(input / scales)`, half to even, with a step for each index of the last axis: `scales` float32 [C]. Two
 * nodes, because the one for both takes ten times as long in ONNX Runtime 1.30.
 */
export function quantizeLinearPerChannel(graph: GraphBuilder, name: string, input: Value, scales: Value): Value {
  const node = { name, operator: "QuantizeLinear" };
  checkElementType(node, input, "float32");
  checkElementType(node, scales, "float32");
  checkShape(node, scales, [input.shape.at(-1)!]);
  const inSteps = divide(graph, `${name}.in_steps`, input, scales);
  const one = graph.constant("quantise.one", "float32", [], [1]);
  const attributes = { output_dtype: { kind: "int", value: onnxDataTypes.int8 } } as const;
  return addStandardNode(graph, node, [inSteps, one], { elementType: "int8", shape: input.shape }, attributes);
}

/**
 * `cache` [B, heads, maxLen, headDim] with `updates` [B, heads, S, headDim] from position `starts` int64 [B] on; in place
 * if both are bound to the same memory.
 */
export function tensorScatter(
  graph: GraphBuilder,
  name: string,
  { cache, updates, starts }: { readonly cache: Value; readonly updates: Value; readonly starts: Value },
): Value {
  const node = { name, operator: "TensorScatter", opset: 24 };
  checkRank(node, cache, 4);
  checkElementType(node, updates, cache.elementType);
  checkShape(node, updates, cache.shape.with(2, updates.shape[2]!));
  checkElementType(node, starts, "int64");
  checkShape(node, starts, [cache.shape[0]!]);
  return addStandardNode(graph, node, [cache, updates, starts], cache, { axis: { kind: "int", value: 2 } });
}

/** The elements before `end` int64 [1] along one axis; `size` is their number. */
export function sliceBefore(
  graph: GraphBuilder,
  name: string,
  input: Value,
  { axis, end, size }: { readonly axis: number; readonly end: Value; readonly size: Dimension },
): Value {
  const node = { name, operator: "Slice" };
  checkElementType(node, end, "int64");
  checkRank(node, end, 1);
  const [start, axes] = [0, axis].map((value) => int64Vector(graph, value));
  const shape = input.shape.with(axis, size);
  return addStandardNode(graph, node, [input, start!, end, axes!], { elementType: input.elementType, shape });
}
