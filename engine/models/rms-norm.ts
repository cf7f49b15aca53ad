/** Root mean square norms of rows. */
import { simplifiedLayerNormalization, skipSimplifiedLayerNormalization } from "../graph/contrib-ops.ts";
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
  const inputs = { input: hidden, skip: residual, weight, epsilon };
  const { normalised, sum } = skipSimplifiedLayerNormalization(context.graph, name, inputs);
  return [normalised, sum];
}
