/** Attention over the rows of a picture and its slices, as `slice_grid` divides them. */
import { maximum } from "../../graph/selection-ops.ts";
import { int64Scalar, int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { concat, divide, gatherRows, multiply, split } from "../../graph/standard-ops.ts";
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

/** int64 [1] each. */
export interface CropSizes {
  /** Patches of the whole picture. */
  readonly ofWhole: Value;
  /** 0 for a picture that is not cut. */
  readonly numSlices: Value;
  /** Patches of a slice, or of the square that stands for missing ones. */
  readonly ofSlice: Value;
}

/** @param grid `slice_grid`, int64 [1, 6]. */
export function cropSizes({ graph }: GraphContext, grid: Value): CropSizes {
  const pairs = reshapeTo(graph, "crops.pairs", grid, [3, 2]);
  const area = (index: number): Value => {
    const sides = gatherRows(graph, `crops.sides.${index}`, pairs, int64Scalar(graph, index));
    const [height, width] = split(graph, `crops.side.${index}`, sides, { axis: 0, sizes: [1, 1] as const });
    return multiply(graph, `crops.area.${index}`, height, width);
  };
  return { ofWhole: area(0), numSlices: area(1), ofSlice: area(2) };
}

/** @param of `rows`: the name of the number of rows of all crops; `patchesPerRow`: how many patches a row stands for. */
export function attendWithinSlices(
  context: GraphContext,
  vision: MiniCpmVVisionConfig,
  { ofWhole, numSlices, ofSlice }: CropSizes,
  { rows, patchesPerRow }: { readonly rows: string; readonly patchesPerRow: number },
): Attend {
  const { graph } = context;
  const { hiddenSize } = vision;
  const rowsOf = (name: string, numPatches: Value): Value =>
    divide(graph, `${rows}.${name}.rows`, numPatches, int64Scalar(graph, patchesPerRow));
  const [rowsOfWhole, rowsOfSlices] = cropNames(rows);
  const count = maximum(graph, `${rows}.slices.count`, numSlices, int64Vector(graph, 1));
  const whole = {
    name: "whole",
    rows: rowsOfWhole,
    count: 1,
    rowsOfEach: rowsOfWhole,
    shape: int64Vector(graph, 1, -1, hiddenSize),
  };
  const sizes = [count, rowsOf("slice", ofSlice), int64Vector(graph, hiddenSize)];
  const slices = {
    name: "slices",
    rows: rowsOfSlices,
    count: "numSlices",
    rowsOfEach: `${rows} of slice`,
    shape: concat(graph, `${rows}.slices.shape`, sizes, 0),
  };
  return attendWithinCrops(context, vision, { rows, numBefore: rowsOf("whole", ofWhole), crops: [whole, slices] });
}
