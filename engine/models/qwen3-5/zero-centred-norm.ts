/** RMS norms whose weights are stored as differences from 1. */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { add, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { joinHeads, splitHeads } from "../decoder-graph/head-rows.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { addAndNormalise } from "../rms-norm.ts";

/**
 * `factor * (1 + weight)`: [size]. ONNX Runtime computes it once, when it loads the graph.
 *
 * @param factor Default 1.
 */
function weightOf(context: GraphContext, name: string, size: number, factor = 1): Value {
  const { graph, precision } = context;
  const stored = parameter(context, `${name}.weight`, [size]);
  const one = graph.constant("norm.one", precision.activations, [1], [1]);
  const weight = add(graph, `${name}.weight.whole`, stored, one);
  if (factor === 1) return weight;
  const scale = graph.constant(`norm.factor.${factor}`, precision.activations, [1], [factor]);
  return multiply(graph, `${name}.weight.scaled`, weight, scale);
}

/** The RMS norm of the residual stream, and the stream itself, which is the sum of both summands. */
export function residualNorm(
  context: GraphContext,
  name: string,
  { hidden, residual, epsilon }: { readonly hidden: Value; readonly residual: Value | null; readonly epsilon: number },
): [normalised: Value, residual: Value] {
  const { graph } = context;
  const weight = weightOf(context, name, Number(hidden.shape[1]));
  if (residual === null) {
    return [simplifiedLayerNormalization(graph, name, { input: hidden, weight, epsilon }), hidden];
  }
  const { normalised, sum } = addAndNormalise(context, name, { input: hidden, skip: residual, weight, epsilon });
  return [normalised, sum];
}

/** The RMS norm of each head in rows [N, heads * headDim], times `factor`. All heads share the weights. */
export function headNorm(
  context: GraphContext,
  name: string,
  rows: Value,
  { headDim, epsilon, factor }: { readonly headDim: number; readonly epsilon: number; readonly factor: number },
): Value {
  const { graph } = context;
  const heads = splitHeads(graph, `${name}.heads`, rows, headDim);
  const weight = weightOf(context, name, headDim, factor);
  const normalised = simplifiedLayerNormalization(graph, name, { input: heads, weight, epsilon });
  return joinHeads(graph, `${name}.rows`, normalised, Number(rows.shape[1]));
}
