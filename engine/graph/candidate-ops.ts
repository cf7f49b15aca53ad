/** Operators that find the most likely tokens of a row. */
import { standardDomain, type GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank } from "./node-checks.ts";
import { int64Vector } from "./shape-ops.ts";
import { addStandardNode } from "./standard-ops.ts";
import type { Value } from "./value.ts";

/** The `count` largest values of each row of float32 [R, features], largest first, and their columns, int64. */
export function topK(
  graph: GraphBuilder,
  name: string,
  input: Value,
  count: number,
): { readonly values: Value; readonly columns: Value } {
  const node = { name, operator: "TopK" };
  checkElementType(node, input, "float32");
  checkRank(node, input, 2);
  const shape = [input.shape[0]!, count];
  const [values, columns] = graph.addNode({
    ...node,
    domain: standardDomain,
    inputs: [input, int64Vector(graph, count)],
    attributes: {
      axis: { kind: "int", value: -1 },
      largest: { kind: "int", value: 1 },
      sorted: { kind: "int", value: 1 },
    },
    outputs: [
      { name: `${name}_logits`, elementType: "float32", shape },
      { name: `${name}.columns`, elementType: "int64", shape },
    ],
  });
  return { values, columns };
}

export function exponential(graph: GraphBuilder, name: string, input: Value): Value {
  const node = { name, operator: "Exp" };
  checkElementType(node, input, "float32");
  return addStandardNode(graph, node, [input], input);
}
