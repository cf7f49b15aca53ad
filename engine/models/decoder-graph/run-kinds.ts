/** How a graph over KV slots tells chunks of prompts from newest tokens. */
import { less } from "../../graph/selection-ops.ts";
import { gatherRows, shapeOf } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { batch, length } from "./sizes.ts";

/**
 * bool []: whether the run has more than one token of a sequence.
 *
 * @param prefix Of the names of values, if the graph has them more than once. Default: none.
 */
export function isChunk({ graph }: Pick<GraphContext, "graph">, prefix = ""): Value {
  const inputIds = graph.input("input_ids", "int64", [batch, length]);
  const one = graph.constant("int64.scalar.1", "int64", [], [1]);
  const shape = shapeOf(graph, `${prefix}run_kind.shape`, inputIds);
  return less(graph, `${prefix}run_kind.is_chunk`, one, gatherRows(graph, `${prefix}run_kind.length`, shape, one));
}
