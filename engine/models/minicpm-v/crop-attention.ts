/** Attention within the whole picture and within each of its slices, but not between them. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { sliceBetween } from "../../graph/selection-ops.ts";
import { concat, divide, gatherRows, multiply, reshape } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
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
export function attendWithinCrops(
  { graph }: GraphContext,
  { hiddenSize, numHeads }: MiniCpmVVisionConfig,
  grid: Value,
  { rows, patchesPerRow }: { readonly rows: string; readonly patchesPerRow: number },
): Attend {
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
  const width = graph.constant(`int64.${hiddenSize}`, "int64", [1], [hiddenSize]);
  const zero = graph.constant("int64.0", "int64", [1], [0]);
  const zeros = graph.constant("int64.zeros", "int64", [2], [0, 0]);
  const beyondAny = graph.constant(`int64.${2 ** 31}`, "int64", [1], [2 ** 31]);
  const rowsOfWhole = rowsOf("whole", 0);
  const endOfWhole = concat(graph, named("whole.end"), [rowsOfWhole, width], 0);
  const startOfSlices = concat(graph, named("slices.start"), [rowsOfWhole, zero], 0);
  const endOfSlices = concat(graph, named("slices.end"), [beyondAny, width], 0);
  const oneOf = graph.constant("whole.shape", "int64", [3], [1, -1, hiddenSize]);
  const manyOf = concat(graph, named("slices.shape"), [area("slices", 2), rowsOf("slice", 4), width], 0);
  const flatTarget = graph.constant("vision.flat_shape", "int64", [2], [-1, hiddenSize]);
  const [ofWhole, ofSlices] = cropNames(rows);
  const [numSlices, ofSlice] = ["numSlices", `${rows} of slice`];

  return (name, { query, key, value }) => {
    const attended = (part: string, { starts, ends, size, target, shape }: CropRows): Value => {
      const crops = (which: string, all: Value): Value => {
        const cut = sliceBetween(graph, `${name}.${which}.${part}`, all, { starts, ends, shape: [size, hiddenSize] });
        return reshape(graph, `${name}.${which}.${part}.crops`, cut, target, shape);
      };
      const parts = { query: crops("q", query), key: crops("k", key), value: crops("v", value) };
      const joint = multiHeadAttention(graph, `${name}.${part}`, { ...parts, numHeads });
      return reshape(graph, `${name}.${part}.flat`, joint, flatTarget, [size, hiddenSize]);
    };
    const whole = attended("whole", {
      starts: zeros,
      ends: endOfWhole,
      size: ofWhole,
      target: oneOf,
      shape: [1, ofWhole, hiddenSize],
    });
    const slices = attended("slices", {
      starts: startOfSlices,
      ends: endOfSlices,
      size: ofSlices,
      target: manyOf,
      shape: [numSlices, ofSlice, hiddenSize],
    });
    return concat(graph, `${name}.crops`, [whole, slices], 0, rows);
  };
}

/** A part of all rows, and its shape by crops. */
interface CropRows {
  readonly starts: Value;
  readonly ends: Value;
  readonly size: string;
  readonly target: Value;
  readonly shape: readonly [number | string, string, number];
}
