/** Rows of several heads as rows of one head each, and back. */
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { reshape } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { tokens } from "../decoder-graph/sizes.ts";

/** [N * heads, headDim] from [N, heads * headDim]. */
export function splitHeads(graph: GraphBuilder, name: string, rows: Value, headDim: number): Value {
  const target = graph.constant(`heads_of.${headDim}`, "int64", [2], [-1, headDim]);
  return reshape(graph, name, rows, target, [`${tokens} * ${Number(rows.shape[1]) / headDim}`, headDim]);
}

/** [N, width] from [N * heads, width / heads]. */
export function joinHeads(graph: GraphBuilder, name: string, heads: Value, width: number): Value {
  const target = graph.constant(`rows_of.${width}`, "int64", [2], [-1, width]);
  return reshape(graph, name, heads, target, [tokens, width]);
}
