/** Attention between patches that are rotated by their positions. */
import { multiHeadAttention, rotaryEmbedding } from "../../graph/contrib-ops.ts";
import { reshape, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
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
}

/**
 * Attention between all patches of a picture, or between those of each window.
 *
 * @param input float [numPatches, embedDim], normalised.
 */
export function patchAttention(
  context: GraphContext,
  { embedDim, numHeads }: Pick<PatchRotaryConfig, "embedDim" | "numHeads">,
  name: string,
  input: Value,
  { rotary: { positions, cosCache, sinCache }, windows = null }: PatchAttentionOptions,
): Value {
  const { graph, precision } = context;
  const tables = { cosCache, sinCache };
  const layer = { name: `${name}.qkv`, inFeatures: embedDim, outFeatures: 3 * embedDim, hasBias: true };
  const packed = linear(context, input, layer, precision.vision);
  const parts = split(graph, `${name}.parts`, packed, { axis: 1, sizes: [embedDim, embedDim, embedDim] });
  const batchShape = graph.constant("vision.batch_shape", "int64", [3], [1, -1, embedDim]);
  const [query, key, value] = parts.map((part, index) =>
    reshape(graph, `${name}.batched.${index}`, part, batchShape, [1, patches, embedDim]),
  ) as [Value, Value, Value];
  const projected = {
    query: rotaryEmbedding(graph, `${name}.query.rotated`, { input: query, positions, ...tables }),
    key: rotaryEmbedding(graph, `${name}.key.rotated`, { input: key, positions, ...tables }),
    value,
  };
  const attended =
    windows === null
      ? multiHeadAttention(graph, name, { ...projected, numHeads })
      : windows.attend(name, projected, { numHeads, embedDim });
  const flatShape = graph.constant("vision.flat_shape", "int64", [2], [-1, embedDim]);
  const flat = reshape(graph, `${name}.flat`, attended, flatShape, [patches, embedDim]);
  const output = { name: `${name}.proj`, inFeatures: embedDim, outFeatures: embedDim, hasBias: true };
  return linear(context, flat, output, precision.vision);
}
