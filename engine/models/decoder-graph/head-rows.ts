/** Rows of several heads as rows of one head each, and back. */
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import type { Value } from "../../graph/value.ts";
import { tokens } from "./sizes.ts";

/** [N * heads, headDim] from [N, heads * headDim]. */
export function splitHeads(graph: GraphBuilder, name: string, rows: Value, headDim: number): Value {
  return reshapeTo(graph, name, rows, [`${tokens} * ${Number(rows.shape[1]) / headDim}`, headDim]);
}

/** [N, width] from [N * heads, width / heads]. */
export function joinHeads(graph: GraphBuilder, name: string, heads: Value, width: number): Value {
  return reshapeTo(graph, name, heads, [tokens, width]);
}
