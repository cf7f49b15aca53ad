/** RMS norms over the heads of queries and keys. */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { separate, type JointProjection } from "../linear.ts";

/**
 * The norm of each head of [N, heads * headDim].
 *
 * @param options.weight [headDim], for all heads.
 */
export function normaliseHeads(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  { weight, epsilon }: { readonly weight: Value; readonly epsilon: number },
): Value {
  const headDim = Number(weight.shape[0]);
  const heads = reshapeTo(graph, `${name}.heads`, rows, [`${name}.numHeads`, headDim]);
  const output = simplifiedLayerNormalization(graph, name, { input: heads, weight, epsilon });
  return reshapeTo(graph, `${name}.rows`, output, rows.shape);
}

export interface HeadSizes {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Names of the norms in the checkpoint, below the layer of attention. Default: `q_norm` and `k_norm`. */
  readonly headNorms?: HeadNormNames;
}

export interface HeadNormNames {
  readonly query: string;
  readonly key: string;
}

const defaultNorms: HeadNormNames = { query: "q_norm", key: "k_norm" };

/**
 * The projections with a norm over each head of query and key.
 *
 * @param weightOf Returns the weights of a norm, [headDim], by its name in the checkpoint.
 */
export function normaliseQueryAndKey(
  context: GraphContext,
  {
    numHeads,
    numKvHeads,
    headDim,
    headNorms = defaultNorms,
    rmsNormEpsilon: epsilon,
  }: HeadSizes & { readonly rmsNormEpsilon: number },
  name: string,
  projected: JointProjection,
  weightOf: (normName: string) => Value,
): JointProjection {
  const widths = [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim] as const;
  const [query, key, value] = separate(context.graph, `${name}.qkv`, projected, widths);
  const normalised = (part: keyof HeadNormNames, rows: Value): Value => {
    const normName = `${name}.${headNorms[part]}`;
    return normaliseHeads(context, normName, rows, { weight: weightOf(normName), epsilon });
  };
  return { kind: "separate", values: [normalised("query", query), normalised("key", key), value] };
}
