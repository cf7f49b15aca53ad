/**
 * Heads in the groups that CUDA's decoding kernel for 8-bit keys and values (XQA) has: 4, 6, 8, 16 or 32 query heads that
 * share keys and values. Smaller groups are filled up with copies of their last head, whose results are dropped. The kernel
 * reads keys and values once for a group, so they cost little.
 */
import { EngineError } from "../../contract/errors.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { gatherColumns } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { CachedAttention } from "./decoder-inputs.ts";
import { tokens } from "./sizes.ts";

const groupSizes = [4, 6, 8, 16, 32] as const;

export interface FullGroups {
  readonly numHeads: number;
  /** [N, numHeads * headDim] of a query with the layer's own heads. */
  fill(query: Value): Value;
  /** The layer's own heads of what attention gives for the query. */
  drop(attended: Value): Value;
}

/**
 * Null if the layer's groups are full.
 *
 * @throws EngineError `invalid_configuration` for larger groups.
 */
export function fullGroups(
  { graph }: Pick<GraphContext, "graph">,
  { name, numHeads, numKvHeads, headDim }: CachedAttention,
): FullGroups | null {
  const size = numHeads / numKvHeads;
  const fullSize = groupSizes.find((each) => each >= size);
  if (fullSize === undefined) {
    throw new EngineError(
      "invalid_configuration",
      `An FP8 KV cache is for at most ${groupSizes.at(-1)} heads that share keys and values; in this model ${size} do. ` +
        'Choose the KV cache dtype "model" or "auto".',
      { setting: "kvCacheDtype" },
    );
  }
  if (fullSize === size) return null;
  const groups = Array.from({ length: numKvHeads }, (_, group) => group);
  const select = (part: string, flat: Value, heads: readonly number[]): Value => {
    const apart = reshapeTo(graph, `${name}.${part}.heads`, flat, [tokens, Number(flat.shape[1]) / headDim, headDim]);
    const indices = graph.constant(`heads.${part}.${numHeads}.${numKvHeads}`, "int64", [heads.length], heads);
    const selected = gatherColumns(graph, `${name}.${part}.selected`, apart, indices);
    return reshapeTo(graph, `${name}.${part}.flat`, selected, [tokens, heads.length * headDim]);
  };
  const filled = groups.flatMap((group) =>
    Array.from({ length: fullSize }, (_, index) => group * size + Math.min(index, size - 1)),
  );
  const own = groups.flatMap((group) => Array.from({ length: size }, (_, index) => group * fullSize + index));
  return {
    numHeads: numKvHeads * fullSize,
    fill: (query) => select("filled", query, filled),
    drop: (attended) => select("own", attended, own),
  };
}
