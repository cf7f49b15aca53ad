/** The end of a decoder graph that lets the host draw tokens without reading whole rows of logits. */
import { exponential, topK } from "../../graph/candidate-ops.ts";
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { gatherElements, sumLast } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, multiply, slice, subtract } from "../../graph/standard-ops.ts";
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
  const { values, columns } = mostLikely(graph, logits, vocabSize, numCandidates);
  const largest = slice(graph, "candidates.largest", values, { axis: 1, start: 0, end: 1 });
  const distances = subtract(graph, "logits.distance", logits, largest);
  const scaled = multiply(graph, "logits.scaled", distances, inverseTemperature);
  graph.output(cast(graph, "candidate_ids", columns, "int32"), [logitRows, numCandidates]);
  graph.output(values, [logitRows, numCandidates]);
  graph.output(sumLast(graph, "mass", exponential(graph, "logits.likelihood", scaled)), [logitRows]);
}

/** Shorter rows are selected from in less time than the additional kernels take. */
const MIN_GROUPED_TOKENS = 16_384;

/** Groups of neighbouring tokens that are wider make the second selection longer than they shorten the first. */
const groupWidths = { narrowest: 16, widest: 256 } as const;

/**
 * The `count` largest logits of each row and their columns.
 *
 * CUDA's `TopK` gives each row to one block of threads: a decode step of few sequences leaves all other processors idle
 * while it walks a vocabulary several times. So rows are divided into groups of neighbours, whose largest logits are found
 * in parallel. `count` groups with the largest of these hold `count` tokens at least as likely as the most likely token of
 * any other group, so every token that is missing is at most equal to the last candidate.
 */
function mostLikely(graph: GraphBuilder, logits: Value, vocabSize: number, count: number): ReturnType<typeof topK> {
  const width = groupWidthOf(vocabSize, count);
  if (width === null) return topK(graph, "candidate", logits, count);
  const numGroups = vocabSize / width;
  const numRows = logits.shape[0]!;
  const grouped = reshapeTo(graph, "logits.grouped", logits, ["groups", width]);
  // `ReduceMax` is the operator for this, but on CUDA it needs cuDNN, which text models do without.
  const { values: maxima } = topK(graph, "group.largest", grouped, 1);
  const { columns: groups } = topK(
    graph,
    "group",
    reshapeTo(graph, "groups.largest", maxima, [numRows, numGroups]),
    count,
  );
  const starts = multiply(
    graph,
    "groups.start",
    reshapeTo(graph, "groups.column", groups, [numRows, count, 1]),
    int64Scalar(graph, width),
  );
  const offsets = Array.from({ length: width }, (_, index) => index);
  const inGroup = graph.constant("groups.offsets", "int64", [width], offsets);
  const tokens = reshapeTo(graph, "groups.tokens", add(graph, "groups.columns", starts, inGroup), [
    numRows,
    count * width,
  ]);
  const { values, columns } = topK(graph, "candidate", gatherElements(graph, "groups.logits", logits, tokens), count);
  return { values, columns: gatherElements(graph, "candidate.tokens", tokens, columns) };
}

/** The divisor of the vocabulary that leaves the least to select from; null where one selection is to do. */
export function groupWidthOf(vocabSize: number, count: number): number | null {
  if (vocabSize < MIN_GROUPED_TOKENS) return null;
  let best: number | null = null;
  let fewest = vocabSize;
  for (let width = groupWidths.narrowest; width <= groupWidths.widest; width++) {
    const numGroups = vocabSize / width;
    const numSelectedFrom = numGroups + count * width;
    if (!Number.isInteger(numGroups) || numGroups < count || numSelectedFrom >= fewest) continue;
    best = width;
    fewest = numSelectedFrom;
  }
  return best;
}
