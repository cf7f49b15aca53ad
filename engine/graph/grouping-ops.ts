/** Operators that put rows into groups, and rows of groups back in order. */
import { standardDomain } from "./graph-builder.ts";
import type { GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, floats, knownSize } from "./node-checks.ts";
import { int64Vector } from "./shape-ops.ts";
import { addStandardNode, expand, reshape, shapeOf } from "./standard-ops.ts";
import type { Value } from "./value.ts";

/** Along the last axis. */
export function softmax(graph: GraphBuilder, name: string, input: Value): Value {
  const node = { name, operator: "Softmax" };
  checkElementType(node, input, ...floats);
  return addStandardNode(graph, node, [input], input, { axis: { kind: "int", value: -1 } });
}

/** int64 [N]: positions of the elements of `input` int64 [N], from the smallest to the largest; equal ones in order. */
export function ascendingOrder(graph: GraphBuilder, name: string, input: Value): Value {
  const node = { name, operator: "TopK" };
  checkElementType(node, input, "int64");
  checkRank(node, input, 1);
  const [, order] = graph.addNode({
    ...node,
    domain: standardDomain,
    inputs: [input, shapeOf(graph, `${name}.length`, input)],
    attributes: {
      axis: { kind: "int", value: 0 },
      largest: { kind: "int", value: 0 },
      sorted: { kind: "int", value: 1 },
    },
    outputs: [
      { name: `${name}.values`, elementType: "int64", shape: input.shape },
      { name, elementType: "int64", shape: input.shape },
    ],
  });
  return order;
}

/** int64 [size]: how many of the elements of `input` int64 [N] are 0, 1 and so on. All are below `size`. */
export function occurrences(graph: GraphBuilder, name: string, input: Value, size: number): Value {
  const node = { name, operator: "ScatterElements" };
  checkElementType(node, input, "int64");
  checkRank(node, input, 1);
  const length = shapeOf(graph, `${name}.length`, input);
  const ones = expand(graph, `${name}.ones`, int64Vector(graph, 1), length, input.shape);
  const zeros = graph.constant(`int64.zeros.${size}`, "int64", [size], Array<number>(size).fill(0));
  return addStandardNode(graph, node, [zeros, input, ones], zeros, { reduction: { kind: "string", value: "add" } });
}

/** Parts of `input` [N, ...] one after the other, of `counts` int64 [parts] rows each; a part may have none. */
export function splitRows(graph: GraphBuilder, name: string, input: Value, counts: Value): readonly Value[] {
  const node = { name, operator: "Split" };
  checkElementType(node, counts, "int64");
  checkRank(node, counts, 1);
  return graph.addNode({
    ...node,
    domain: standardDomain,
    inputs: [input, counts],
    attributes: { axis: { kind: "int", value: 0 } },
    outputs: Array.from({ length: knownSize(node, counts, 0) }, (_, part) => ({
      name: `${name}.${part}`,
      elementType: input.elementType,
      shape: input.shape.with(0, `${name}.${part}`),
    })),
  });
}

/** [N, features]: sums of `rows` [N, count, features], each with its factor in `weights` [N, count]. */
export function weightedSums(graph: GraphBuilder, name: string, weights: Value, rows: Value): Value {
  const node = { name, operator: "MatMul" };
  checkElementType(node, weights, rows.elementType);
  const [length, count, features] = [rows.shape[0]!, knownSize(node, rows, 1), knownSize(node, rows, 2)];
  checkShape(node, weights, [length, count]);
  const factorShape = graph.constant(`weighted_sums.${count}`, "int64", [3], [-1, 1, count]);
  const factors = reshape(graph, `${name}.factors`, weights, factorShape, [length, 1, count]);
  const sums = addStandardNode(graph, { name: `${name}.product`, operator: "MatMul" }, [factors, rows], {
    elementType: rows.elementType,
    shape: [length, 1, features],
  });
  const sumShape = graph.constant(`rows.${features}`, "int64", [2], [-1, features]);
  return reshape(graph, name, sums, sumShape, [length, features]);
}
