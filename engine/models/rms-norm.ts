/** Root mean square norms of rows. */
import { simplifiedLayerNormalization, skipSimplifiedLayerNormalization } from "../graph/contrib-ops.ts";
import { add } from "../graph/standard-ops.ts";
import type { Value } from "../graph/value.ts";
import { parameter, type GraphContext } from "./graph-context.ts";

/** @param input float [rows, size]. */
export function rmsNorm(
  context: GraphContext,
  name: string,
  input: Value,
  { size, epsilon }: { readonly size: number; readonly epsilon: number },
): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  return simplifiedLayerNormalization(context.graph, name, { input, weight, epsilon });
}

export interface ResidualStream {
  /** [rows, size]: the newest block's output. */
  readonly hidden: Value;
  /** [rows, size]: everything before; null for the embeddings alone. */
  readonly residual: Value | null;
}

/** The norm of the sum of both summands, and the sum itself. */
export function residualRmsNorm(
  context: GraphContext,
  name: string,
  { hidden, residual }: ResidualStream,
  { size, epsilon }: { readonly size: number; readonly epsilon: number },
): [normalised: Value, residual: Value] {
  if (residual === null) return [rmsNorm(context, name, hidden, { size, epsilon }), hidden];
  const weight = parameter(context, `${name}.weight`, [size]);
  const { normalised, sum } = addAndNormalise(context, name, { input: hidden, skip: residual, weight, epsilon });
  return [normalised, sum];
}

/** The RMS norm of `input + skip`, and this sum. All are float [rows, size], the weight [size]. */
export function addAndNormalise(
  { graph, device }: GraphContext,
  name: string,
  inputs: { readonly input: Value; readonly skip: Value; readonly weight: Value; readonly epsilon: number },
): { readonly normalised: Value; readonly sum: Value } {
  if (device !== "cpu") return skipSimplifiedLayerNormalization(graph, name, inputs);
  // The CPU's kernel for both adds up the squares one by one, and takes twice as long as two nodes.
  const { input, skip, weight, epsilon } = inputs;
  const sum = add(graph, `${name}.sum`, input, skip);
  return { normalised: simplifiedLayerNormalization(graph, name, { input: sum, weight, epsilon }), sum };
}
