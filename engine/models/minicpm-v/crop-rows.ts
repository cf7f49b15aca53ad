/** Attention over the rows of a picture and its slices, as `slice_grid` divides them. */
import { maximum } from "../../graph/selection-ops.ts";
import { concat, divide, gatherRows, multiply, reshape } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { attendWithinCrops } from "../vision-transformer/crop-attention.ts";
import type { Attend } from "../vision-transformer/encoder-layers.ts";
import type { MiniCpmVVisionConfig } from "./config.ts";

/** Windows, and squares of windows, are 2 x 2. */
export const PATCHES_PER_WINDOW = 4;

/** Names of the numbers of rows of the whole picture and of all slices. */
export function cropNames(rows: string): readonly [whole: string, slices: string] {
  return [`${rows} of whole`, `${rows} of slices`];
}

/**
 * @param grid `slice_grid`, int64 [1, 6].
 * @param of `rows`: the name of the number of rows of all crops; `patchesPerRow`: how many patches a row stands for.
 */
export function attendWithinSlices(
  context: GraphContext,
  vision: MiniCpmVVisionConfig,
  grid: Value,
  { rows, patchesPerRow }: { readonly rows: string; readonly patchesPerRow: number },
): Attend {
  const { graph } = context;
  const scalar = (value: number): Value => graph.constant(`int64.scalar.${value}`, "int64", [], [value]);
  const one = graph.constant("int64.1", "int64", [1], [1]);
  const named = (name: string): string => `${rows}.${name}`;
  const flatGrid = reshape(graph, named("grid"), grid, graph.constant("slice_grid.shape", "int64", [1], [6]), [6]);
  /** int64 [1]: the product of two neighbouring sizes. */
  const area = (name: string, index: number): Value => {
    const [height, width] = [index, index + 1].map((place) =>
      gatherRows(graph, named(`${name}.${place}`), flatGrid, scalar(place)),
    ) as [Value, Value];
    const product = multiply(graph, named(`${name}.area`), height, width);
    return reshape(graph, named(name), product, one, [1]);
  };
  const rowsOf = (name: string, index: number): Value =>
    divide(graph, named(`${name}.rows`), area(name, index), scalar(patchesPerRow));
  const { hiddenSize } = vision;
  const width = graph.constant(`int64.${hiddenSize}`, "int64", [1], [hiddenSize]);
  const [ofWhole, ofSlices] = cropNames(rows);
  const numSlices = maximum(graph, named("slices.count"), area("slices", 2), one);
  const whole = {
    name: "whole",
    rows: ofWhole,
    count: 1,
    rowsOfEach: ofWhole,
    shape: graph.constant("whole.shape", "int64", [3], [1, -1, hiddenSize]),
  };
  const slices = {
    name: "slices",
    rows: ofSlices,
    count: "numSlices",
    rowsOfEach: `${rows} of slice`,
    shape: concat(graph, named("slices.shape"), [numSlices, rowsOf("slice", 4), width], 0),
  };
  return attendWithinCrops(context, vision, { rows, numBefore: rowsOf("whole", 0), crops: [whole, slices] });
}
