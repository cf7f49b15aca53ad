/** How a graph over KV slots tells chunks of prompts from newest tokens. */
import { greaterOrEqual, less, maximum } from "../../graph/selection-ops.ts";
import { int64Scalar } from "../../graph/shape-ops.ts";
import { gatherRows, shapeOf, subtract } from "../../graph/standard-ops.ts";
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
  const one = int64Scalar(graph, 1);
  const shape = shapeOf(graph, `${prefix}run_kind.shape`, inputIds);
  return less(graph, `${prefix}run_kind.is_chunk`, one, gatherRows(graph, `${prefix}run_kind.length`, shape, one));
}

/** 12 newest tokens decode a quarter faster with 8-bit weights than with 4-bit ones, and 32 over a third; 8 about equally. */
export const MIN_SEQUENCES_IN_8_BITS = 12;

/** The same beside stored blocks of 8 bits: two newest tokens decode a quarter faster with a scale per channel, one about equally. */
export const MIN_SEQUENCES_BESIDE_8_BITS = 2;

/**
 * bool []: whether the weights of prompts compute the run: a chunk of a prompt, or newest tokens of at least
 * `minSequences` sequences.
 */
export function isWide({ graph }: Pick<GraphContext, "graph">, minSequences: number): Value {
  const inputIds = graph.input("input_ids", "int64", [batch, length]);
  const one = int64Scalar(graph, 1);
  const shape = shapeOf(graph, "wide_run.shape", inputIds);
  const numSequences = gatherRows(graph, "wide_run.batch", shape, int64Scalar(graph, 0));
  const atMost = int64Scalar(graph, minSequences - 1);
  const more = {
    tokens: subtract(graph, "wide_run.more_tokens", gatherRows(graph, "wide_run.length", shape, one), one),
    sequences: subtract(graph, "wide_run.more_sequences", numSequences, atMost),
  };
  return greaterOrEqual(graph, "wide_run.is_wide", maximum(graph, "wide_run.more", more.tokens, more.sequences), one);
}
