/**
 * The last tokens of a run over KV slots: from the first whose logits are requested on, and at least the last one. Layers
 * behind those with keys and values then compute a token of a prompt instead of all.
 */
import { sliceFrom } from "../../graph/selection-ops.ts";
import { concat, gatherRows, reduceMin, reshape, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { DecoderTail } from "./decoder-inputs.ts";
import { tailLength, tailTokens } from "./sizes.ts";
import type { SlotValues } from "./slot-projections.ts";

/** A run has one sequence, or one token of each; in the second case all of them stay. */
export function createSlotTail(
  { graph }: GraphContext,
  values: SlotValues,
  logitRows: Value,
): { readonly values: SlotValues; readonly logitRows: Value; readonly keep: DecoderTail["keep"] } {
  const [zero, one] = [0, 1].map((value) => graph.constant(`int64.${value}`, "int64", [1], [value]));
  const length = gatherRows(graph, "tail.run_length", values.inputShape, one!);
  const last = subtract(graph, "tail.last", length, one!);
  const candidates = concat(graph, "tail.candidates", [logitRows, last], 0, "R + 1");
  const start = reduceMin(graph, "tail.start", candidates);
  const startVector = reshape(graph, "tail.start.vector", start, one!, [1]);
  const keep = (name: string, rows: Value): Value => sliceFrom(graph, name, rows, startVector, tailTokens);
  const numTokens = subtract(graph, "tail.length", length, startVector);
  const numSequences = gatherRows(graph, "tail.batch", values.inputShape, zero!);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  return {
    values: {
      ...values,
      prefix: "tail.",
      sizes: { length: tailLength, tokens: tailTokens },
      tokenIds: keep("tail.input_ids", values.tokenIds),
      inputShape: concat(graph, "tail.shape", [numSequences, numTokens], 0),
      batchShape: concat(graph, "tail.batch_shape", [numSequences, numTokens, anySize], 0),
      rotaryRows: new Map(),
    },
    logitRows: subtract(graph, "tail.logit_rows", logitRows, start),
    keep,
  };
}
