/** The order of features for weights that were made for pixels, with all colours of each one after the other. */
import { gatherColumns } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";

const NUM_CHANNELS = 3;

/**
 * Features of patches, or of squares of `mergeSize` patches on each side, pixel by pixel instead of patch by patch and
 * channel by channel.
 *
 * @param rows float [N, mergeSize^2 * 3 * patchSize^2], as `patchValues` orders them.
 * @returns The same shape.
 */
export function byPixel(
  { graph }: GraphContext,
  { patchSize, mergeSize = 1 }: { readonly patchSize: number; readonly mergeSize?: number },
  rows: Value,
): Value {
  const side = patchSize * mergeSize;
  const order = Array.from({ length: NUM_CHANNELS * side ** 2 }, (_, feature) => {
    const channel = feature % NUM_CHANNELS;
    const pixel = Math.floor(feature / NUM_CHANNELS);
    const [row, column] = [Math.floor(pixel / side), pixel % side];
    const patch = Math.floor(row / patchSize) * mergeSize + Math.floor(column / patchSize);
    const inPatch = (row % patchSize) * patchSize + (column % patchSize);
    return (patch * NUM_CHANNELS + channel) * patchSize ** 2 + inPatch;
  });
  const indices = graph.constant("pixels.order", "int32", [order.length], order);
  return gatherColumns(graph, "pixels.by_pixel", rows, indices);
}
