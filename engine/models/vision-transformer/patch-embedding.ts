/** Turns pictures into embeddings of their patches. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { slice, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import { numPatches, patchesPerSide, type VisionConfig } from "./config.ts";

/**
 * The convolution over patches as one matrix product: its stride equals its kernel size, so no pixel is in two patches.
 *
 * @param name Name of the convolution in the checkpoint.
 * @param pixels float [numImages, channels, imageSize, imageSize].
 * @returns [numImages, numPatches, hiddenSize], row by row of patches.
 */
export function embedPatches(
  context: GraphContext,
  config: VisionConfig,
  { name, hasBias }: { readonly name: string; readonly hasBias: boolean },
  pixels: Value,
): Value {
  const { graph, precision } = context;
  const { numChannels, patchSize, hiddenSize } = config;
  const [images] = pixels.shape;
  const side = patchesPerSide(config);
  const patchFeatures = numChannels * patchSize * patchSize;

  const end = side * patchSize;
  let covered = pixels;
  if (end !== config.imageSize) {
    covered = slice(graph, "pixels.rows", covered, { axis: 2, start: 0, end });
    covered = slice(graph, "pixels.columns", covered, { axis: 3, start: 0, end });
  }
  const gridShape = [numChannels, side, patchSize, side, patchSize];
  const grid = reshapeTo(graph, "patches.grid", covered, [images!, ...gridShape]);
  const ordered = transpose(graph, "patches.ordered", grid, [0, 2, 4, 1, 3, 5]);
  const flat = reshapeTo(graph, "patches.flat", ordered, [`${images} * numPatches`, patchFeatures]);
  const projection: LinearLayer = {
    name,
    inFeatures: patchFeatures,
    outFeatures: hiddenSize,
    hasBias,
    storedShape: [hiddenSize, numChannels, patchSize, patchSize],
  };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  const projected = linear(context, flat, projection, { kind: "plain", elementType: precision.activations });
  const count = numPatches(config);
  return reshapeTo(graph, "patches.batched", projected, [images!, count, hiddenSize]);
}
