/** Leaves out the branch for prompts where no layer has weights of its own for it. */
import type { Checkpoint } from "../weights/checkpoint.ts";
import { isForPrompts } from "./kept-format.ts";
import { configureGraphs, type GraphOptions } from "./model-graphs.ts";
import { WeightCollector } from "./weight-source.ts";

/**
 * The options without 8-bit weights for prompts if the checkpoint stores the integers of all layers that would have
 * them. Two equal branches would pack the same weights twice, and speculative decoding could not be used.
 *
 * @throws EngineError like `configureGraphs` and the graph.
 */
export function withoutEqualBranches<Options extends GraphOptions>(checkpoint: Checkpoint, options: Options): Options {
  if (options.widenedLayers !== "own") return options;
  const { precision, buildDecoder } = configureGraphs(checkpoint.config, options);
  // Fovea quantises each layer of all other checkpoints.
  if (precision.keepsIntegers !== true) return options;
  const collector = new WeightCollector(checkpoint.tensors);
  buildDecoder(collector);
  const hasOwn = [...collector.requests.values()].some(({ format }) => isForPrompts(precision, format));
  return hasOwn ? options : { ...options, widenedLayers: "none" };
}
