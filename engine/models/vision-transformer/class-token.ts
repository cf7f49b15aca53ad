/** Embeddings of pictures with a class token in front of their patches. */
import { add, concat, expand, shapeOf } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { numPatches, type VisionConfig } from "./config.ts";
import { embedPatches } from "./patch-embedding.ts";

/** Names of a checkpoint's tensors. */
export interface ClassTokenNames {
  readonly convolution: { readonly name: string; readonly hasBias: boolean };
  /** [1, 1, hiddenSize]. */
  readonly classToken: string;
  /** [1, 1 + numPatches, hiddenSize]. */
  readonly positions: string;
}

/**
 * @param pixels float [numImages, channels, imageSize, imageSize].
 * @returns [numImages, 1 + numPatches, hiddenSize], with their positions added.
 */
export function embedWithClassToken(
  context: GraphContext,
  config: VisionConfig,
  names: ClassTokenNames,
  pixels: Value,
): Value {
  const { hiddenSize } = config;
  const classToken = parameter(context, names.classToken, [1, 1, hiddenSize]);
  const positions = parameter(context, names.positions, [1, numPatches(config) + 1, hiddenSize]);
  return withClassToken(context, embedPatches(context, config, names.convolution, pixels), {
    classToken,
    positions,
    pixels,
  });
}

/**
 * @param patches [numImages, numPatches, hiddenSize].
 * @param parts `classToken` [1, 1, hiddenSize], `positions` [(1,) 1 + numPatches, hiddenSize], `pixels` [numImages, ...].
 */
export function withClassToken(
  { graph }: GraphContext,
  patches: Value,
  { classToken, positions, pixels }: { readonly classToken: Value; readonly positions: Value; readonly pixels: Value },
): Value {
  const hiddenSize = patches.shape[2]!;
  const oneByOne = graph.constant("vision.one_by_one", "int64", [2], [1, 1]);
  const target = concat(graph, "class.shape", [shapeOf(graph, "num_images", pixels, 1), oneByOne], 0);
  const classTokens = expand(graph, "class.tokens", classToken, target, [pixels.shape[0]!, 1, hiddenSize]);
  return add(graph, "embedded", concat(graph, "patches.with_class", [classTokens, patches], 1), positions);
}
