/**
 * Recurrent layers over KV slots: a slot has a state of each layer, which a run replaces in place.
 *
 * A run of a range of slots computes a token for each, also for slots that do not decode. Keys and values that such a
 * token leaves behind are overwritten later, but a state could not be restored. Those slots therefore keep theirs:
 * with a decay of 0 (in logarithms) and a beta of 0 the delta rule changes nothing.
 */
import { causalConvolution, gatedDeltaRule } from "../../graph/recurrent-ops.ts";
import { where } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { reshape } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { CachedConvolution, CachedRecurrence, DecoderInputs } from "./decoder-inputs.ts";
import { batch, length, tokens } from "./sizes.ts";

/** The inputs of the graph are added for the first recurrent layer. */
export function createSlotRecurrence(
  context: GraphContext,
  { batchShape }: { /** int64 [3]: B, S, -1. */ readonly batchShape: Value },
): Pick<DecoderInputs, "convolve" | "recur"> {
  const { graph, precision } = context;
  let isUpdated: Value | null = null;
  /** bool [B, 1, 1]. */
  const condition = (): Value => {
    if (isUpdated !== null) return isUpdated;
    const given = graph.input("updates_state", "bool", [batch]);
    const shape = graph.constant("state.condition_shape", "int64", [3], [-1, 1, 1]);
    isUpdated = reshape(graph, "updates_state.by_slot", given, shape, [batch, 1, 1]);
    return isUpdated;
  };
  const batched = (name: string, flat: Value): Value =>
    reshape(graph, name, flat, batchShape, [batch, length, flat.shape[1]!]);
  const flattened = (name: string, value: Value): Value => {
    const width = Number(value.shape[2]);
    return reshapeTo(graph, name, value, [tokens, width]);
  };
  return {
    convolve({ name, layer, input, kernel, ...parts }: CachedConvolution) {
      const [channels, , kernelSize] = kernel.shape.map(Number) as [number, number, number];
      const past = graph.input(`past.${layer}.convolution`, precision.activations, [batch, kernelSize - 1, channels]);
      const { output, present } = causalConvolution(graph, name, {
        input: batched(`${name}.batched`, input),
        kernel,
        past,
        ...parts,
      });
      const kept = { condition: condition(), chosen: present, other: past };
      graph.output(where(graph, `present.${layer}.convolution`, kept));
      return flattened(`${name}.flat`, output);
    },
    recur({ name, layer, numKeyHeads, numValueHeads, keyDim, valueDim, ...rows }: CachedRecurrence) {
      const none = graph.constant("float32.zero", "float32", [], [0]);
      const gate = (part: "decay" | "beta"): Value =>
        where(graph, `${name}.${part}.updated`, {
          condition: condition(),
          chosen: batched(`${name}.${part}.batched`, rows[part]),
          other: none,
        });
      const { output, present } = gatedDeltaRule(graph, name, {
        query: batched(`${name}.query.batched`, rows.query),
        key: batched(`${name}.key.batched`, rows.key),
        value: batched(`${name}.value.batched`, rows.value),
        decay: gate("decay"),
        beta: gate("beta"),
        past: graph.input(`past.${layer}.state`, "float32", [batch, numValueHeads, keyDim, valueDim]),
        numKeyHeads,
        presentName: `present.${layer}.state`,
      });
      graph.output(present);
      return flattened(`${name}.flat`, output);
    },
  };
}
