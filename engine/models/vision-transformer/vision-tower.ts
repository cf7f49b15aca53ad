/** The contract of vision towers, so that models can be built on their hidden states. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { VisionConfig } from "./config.ts";

export interface VisionTower {
  /** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
  parseConfig(config: unknown, path: string): VisionConfig;
  /** Number of rows of a picture's hidden states: its patches, preceded by the class token if the tower has one. */
  numTokens(config: VisionConfig): number;
  /**
   * @param pixels float [numImages, channels, imageSize, imageSize].
   * @param prefix Prefix of the tower's tensors, e.g. "vision_tower.vision_model."
   * @param layers The wanted hidden states: 0 is before the first layer, n after the n-th. Later layers are not
   * computed, and the norm after the last one is not included.
   * @returns For each of `layers`, [numImages, numTokens, hiddenSize].
   */
  build(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value, layers: readonly number[]): Value[];
}
