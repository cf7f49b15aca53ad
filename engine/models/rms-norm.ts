/** Root mean square norms of rows. */
import { simplifiedLayerNormalization } from "../graph/contrib-ops.ts";
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
