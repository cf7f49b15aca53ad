/** What a vision tower must say about itself so that others can be built on its hidden states. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { VisionConfig } from "./config.ts";

export interface VisionTower {
  /** @throws EngineError `invalid_checkpoint` or `unsupported_model`, naming the field. */
  parseConfig(config: unknown, path: string): VisionConfig;
  /** Rows of a picture's hidden states: its patches, and the class token first where the tower has one. */
  numTokens(config: VisionConfig): number;
  /**
   * @param pixels float [numImages, channels, imageSize, imageSize].
   * @param prefix Prefix of the tower's tensors, e.g. "vision_tower.vision_model."
   * @param layers Which hidden states: 0 is before the first layer, n after the n-th. Later layers are not computed,
   *   and the norm after the last is no part of any.
   * @returns For each of `layers`, [numImages, numTokens, hiddenSize].
   */
  build(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value, layers: readonly number[]): Value[];
}
