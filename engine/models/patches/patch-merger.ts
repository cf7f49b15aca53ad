/** From patches to embeddings in the decoder's width. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";

export interface MergerConfig {
  /** Width of the tower. */
  readonly embedDim: number;
  /** Side of a square, in patches. */
  readonly mergeSize: number;
}

/**
 * Puts the patches of each square side by side, and projects them by two layers to the decoder's width.
 *
 * @param normalised float [numPatches, embedDim], after the merger's own norm.
 * @param layerNames The two layers' names below `name`.
 * @returns float [numSquares, outFeatures].
 */
export function mergePatches(
  context: GraphContext,
  { embedDim, mergeSize }: MergerConfig,
  name: string,
  normalised: Value,
  outFeatures: number,
  layerNames: readonly [first: string, second: string] = ["mlp.0", "mlp.2"],
): Value {
  const { graph, precision } = context;
  const [firstName, secondName] = layerNames;
  const inFeatures = embedDim * mergeSize * mergeSize;
  const squares = reshapeTo(graph, `${name}.squares`, normalised, ["numSquares", inFeatures]);
  const first = { name: `${name}.${firstName}`, inFeatures, outFeatures: inFeatures, hasBias: true };
  const activated = applyActivation(
    graph,
    `${name}.activation`,
    linear(context, squares, first, precision.vision),
    "gelu",
  );
  return linear(
    context,
    activated,
    { name: `${name}.${secondName}`, inFeatures, outFeatures, hasBias: true },
    precision.vision,
  );
}
