/** The end of a decoder graph that lets the host draw tokens without reading whole rows of logits. */
import { exponential, topK } from "../../graph/candidate-ops.ts";
import { sumLast } from "../../graph/selection-ops.ts";
import { cast, multiply, slice, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { logitRows, type GraphContext } from "../graph-context.ts";

/** With 64 candidates, 32 rows take 16 KiB instead of 16 MiB of logits. Few draws of a trained model need more. */
const MAX_CANDIDATES = 64;

/** Number of candidates per row. */
export function numCandidatesOf(vocabSize: number): number {
  return Math.min(MAX_CANDIDATES, vocabSize);
}

/**
 * Adds the input `inverse_temperature` and the outputs `candidate_logits`, `candidate_ids` and `mass`; see
 * `DecoderGraph`.
 *
 * @param logits float32 [R, vocabSize].
 */
export function outputCandidates({ graph }: Pick<GraphContext, "graph">, logits: Value, vocabSize: number): void {
  const numCandidates = numCandidatesOf(vocabSize);
  const inverseTemperature = graph.input("inverse_temperature", "float32", [logitRows, 1]);
  const { values, columns } = topK(graph, "candidate", logits, numCandidates);
  const largest = slice(graph, "candidates.largest", values, { axis: 1, start: 0, end: 1 });
  const distances = subtract(graph, "logits.distance", logits, largest);
  const scaled = multiply(graph, "logits.scaled", distances, inverseTemperature);
  graph.output(cast(graph, "candidate_ids", columns, "int32"), [logitRows, numCandidates]);
  graph.output(values, [logitRows, numCandidates]);
  graph.output(sumLast(graph, "mass", exponential(graph, "logits.likelihood", scaled)), [logitRows]);
}
