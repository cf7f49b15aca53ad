/**
 * The last tokens of a run over KV slots: from the first whose logits are requested on, and at least the last one. Layers
 * behind those with keys and values then compute a token of a prompt instead of all.
 */
import { less, sliceFrom } from "../../graph/selection-ops.ts";
import { int64Vector } from "../../graph/shape-ops.ts";
import { cast, concat, gatherRows, multiply, reduceMin, reshape, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { DecoderTail } from "./decoder-inputs.ts";
import { tailLength, tailTokens } from "./sizes.ts";
import type { SlotValues } from "./slot-projections.ts";

/** Of several sequences, all tokens stay. */
export function createSlotTail(
  { graph, adapterTokens }: GraphContext,
  values: SlotValues,
  logitRows: Value,
): { readonly values: SlotValues; readonly logitRows: Value; readonly keep: DecoderTail["keep"] } {
  const [zero, one, two] = [0, 1, 2].map((value) => int64Vector(graph, value));
  const length = gatherRows(graph, "tail.run_length", values.inputShape, one!);
  const numSequences = gatherRows(graph, "tail.batch", values.inputShape, zero!);
  const isAlone = cast(graph, "tail.is_alone", less(graph, "tail.is_alone.bool", numSequences, two!), "int64");
  const last = multiply(graph, "tail.last", subtract(graph, "tail.last_of_sequence", length, one!), isAlone);
  const candidates = concat(graph, "tail.candidates", [logitRows, last], 0, "R + 1");
  const start = reduceMin(graph, "tail.start", candidates);
  const startVector = reshape(graph, "tail.start.vector", start, one!, [1]);
  const keep = (name: string, rows: Value): Value => sliceFrom(graph, name, rows, startVector, tailTokens);
  const adapterIds = adapterTokens?.ids.get(values.sizes.tokens);
  if (adapterIds !== undefined) adapterTokens?.ids.set(tailTokens, keep("tail.adapter_ids", adapterIds));
  const numTokens = subtract(graph, "tail.length", length, startVector);
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
