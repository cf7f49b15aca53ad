/** Attention between patches that are rotated by their positions. */
import { multiHeadAttention, rotaryEmbedding } from "../../graph/contrib-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { rmsNorm } from "../rms-norm.ts";
import { patches, type PatchRotary, type PatchRotaryConfig } from "./patch-rotary.ts";

/** Parts of a picture between which there is no attention. */
export interface PatchWindows {
  /** Takes and returns [1, numPatches, embedDim]. */
  attend(
    this: void,
    name: string,
    projected: { readonly query: Value; readonly key: Value; readonly value: Value },
    sizes: { readonly numHeads: number; readonly embedDim: number },
  ): Value;
}

export interface PatchAttentionOptions {
  readonly rotary: PatchRotary;
  /** If left out, every patch sees the whole picture. */
  readonly windows?: PatchWindows | null;
  /** Which projections have biases. Default: both. */
  readonly biases?: { readonly qkv: boolean; readonly output: boolean };
  /** If given, each head of queries and keys has an RMS norm. */
  readonly normEpsilon?: number | null;
}

/** Projections of the patches, each float [numPatches, embedDim]. */
export interface PatchProjections {
  readonly query: Value;
  readonly key: Value;
  readonly value: Value;
}

/**
 * Attention between all patches of a picture, or between those of each window, with its projections.
 *
 * @param input float [numPatches, embedDim], normalised.
 */
export function patchAttention(
  context: GraphContext,
  sizes: Pick<PatchRotaryConfig, "embedDim" | "numHeads">,
  name: string,
  input: Value,
  options: PatchAttentionOptions,
): Value {
  const { graph, precision } = context;
  const { embedDim } = sizes;
  const { biases = { qkv: true, output: true }, normEpsilon = null } = options;
  const layer = { name: `${name}.qkv`, inFeatures: embedDim, outFeatures: 3 * embedDim, hasBias: biases.qkv };
  const packed = linear(context, input, layer, precision.vision);
  const [query, key, value] = split(graph, `${name}.parts`, packed, {
    axis: 1,
    sizes: [embedDim, embedDim, embedDim],
  });
  const normalised = (part: string, rows: Value): Value =>
    normEpsilon === null
      ? rows
      : normaliseHeads(context, `${name}.${part}`, rows, { headDim: embedDim / sizes.numHeads, epsilon: normEpsilon });
  const projections = { query: normalised("q_norm", query), key: normalised("k_norm", key), value };
  const attended = attendPatches(context, sizes, name, projections, options);
  const output = { name: `${name}.proj`, inFeatures: embedDim, outFeatures: embedDim, hasBias: biases.output };
  return linear(context, attended, output, precision.vision);
}

/** float [numPatches, heads * headDim], as is `rows`; all heads share the weights of the norm. */
export function normaliseHeads(
  context: GraphContext,
  name: string,
  rows: Value,
  { headDim, epsilon }: { readonly headDim: number; readonly epsilon: number },
): Value {
  const { graph } = context;
  const width = Number(rows.shape[1]);
  const heads = reshapeTo(graph, `${name}.heads`, rows, [`${patches} * ${width / headDim}`, headDim]);
  const normalised = rmsNorm(context, name, heads, { size: headDim, epsilon });
  return reshapeTo(graph, `${name}.rows`, normalised, [patches, width]);
}

/** Returns float [numPatches, embedDim]: what the patches attend to, before the output's projection. */
export function attendPatches(
  { graph }: GraphContext,
  { embedDim, numHeads }: Pick<PatchRotaryConfig, "embedDim" | "numHeads">,
  name: string,
  { query, key, value }: PatchProjections,
  { rotary: { positions, cosCache, sinCache }, windows = null }: PatchAttentionOptions,
): Value {
  const batched = (index: number, part: Value): Value =>
    reshapeTo(graph, `${name}.batched.${index}`, part, [1, patches, embedDim]);
  const rotated = (part: string, input: Value): Value =>
    rotaryEmbedding(graph, `${name}.${part}.rotated`, { input, positions, cosCache, sinCache });
  const projected = {
    query: rotated("query", batched(0, query)),
    key: rotated("key", batched(1, key)),
    value: batched(2, value),
  };
  const attended =
    windows === null
      ? multiHeadAttention(graph, name, { ...projected, numHeads })
      : windows.attend(name, projected, { numHeads, embedDim });
  return reshapeTo(graph, `${name}.flat`, attended, [patches, embedDim]);
}
