/** The first layer of a tower over patches. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";

export interface PatchShape {
  readonly numChannels: number;
  readonly patchSize: number;
  /** Number of pictures that a patch spans; a still picture is repeated. */
  readonly temporalPatchSize: number;
}

/** Number of features of a patch: its pixels in every picture that it spans, [channels, temporal, height, width]. */
export function patchFeatures({ numChannels, temporalPatchSize, patchSize }: PatchShape): number {
  return numChannels * temporalPatchSize * patchSize * patchSize;
}

/** float [numPatches, features] to [numPatches, embedDim]. */
export function embedPatches(
  context: GraphContext,
  config: PatchShape & { readonly embedDim: number },
  prefix: string,
  pixels: Value,
  hasBias = false,
): Value {
  const { numChannels, temporalPatchSize, patchSize, embedDim } = config;
  const storedShape = [embedDim, numChannels, temporalPatchSize, patchSize, patchSize];
  return projectPatches(context, pixels, { name: `${prefix}patch_embed.proj`, hasBias, storedShape });
}

/**
 * Like `embedPatches`, for a convolution over single pictures: one without a dimension of time, with a bias.
 *
 * @param name Name of the convolution in the checkpoint.
 */
export function embedStillPatches(
  context: GraphContext,
  { numChannels, patchSize, embedDim }: Omit<PatchShape, "temporalPatchSize"> & { readonly embedDim: number },
  name: string,
  pixels: Value,
): Value {
  return projectPatches(context, pixels, {
    name,
    hasBias: true,
    storedShape: [embedDim, numChannels, patchSize, patchSize],
  });
}

/**
 * Like `embedPatches`, for a linear layer without a bias.
 *
 * @param name Name of the layer in the checkpoint.
 */
export function embedFlatPatches(
  context: GraphContext,
  config: PatchShape & { readonly embedDim: number },
  name: string,
  pixels: Value,
): Value {
  const storedShape = [config.embedDim, patchFeatures(config)];
  return projectPatches(context, pixels, { name, hasBias: false, storedShape });
}

function projectPatches(
  context: GraphContext,
  pixels: Value,
  { storedShape, ...layer }: Pick<LinearLayer, "name" | "hasBias"> & { readonly storedShape: readonly number[] },
): Value {
  const [outFeatures, ...kernel] = storedShape;
  const inFeatures = kernel.reduce((product, size) => product * size, 1);
  const projection: LinearLayer = { ...layer, inFeatures, outFeatures: outFeatures!, storedShape };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  return linear(context, pixels, projection, { kind: "plain", elementType: context.precision.activations });
}
