/** Which layers of a tower give features to which of the decoder (DeepStack). */
import { unsupportedField } from "./config-field.ts";

const path = "vision_config";
const field = "deepstack_visual_indexes";

/** Rejects layers that a tower of `depth` layers lacks, and those that are not in order. */
export function requireTowerLayers(levelLayers: readonly number[], depth: number): void {
  const isAscending = levelLayers.every((layer, index) => index === 0 || layer > levelLayers[index - 1]!);
  if (isAscending && levelLayers.every((layer) => layer < depth)) return;
  throw unsupportedField(path, field, levelLayers, `expected ascending layers of the ${depth}`);
}

/** Rejects more layers than a decoder of `numLayers` can take features of: its first ones, without the last. */
export function requireDecoderLayers(levelLayers: readonly number[], numLayers: number): void {
  if (levelLayers.length < numLayers) return;
  const reason = `the decoder has ${numLayers} layers, and all but the last may get features`;
  throw unsupportedField(path, field, levelLayers, reason);
}
