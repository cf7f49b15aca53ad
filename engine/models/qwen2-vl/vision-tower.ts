/** Qwen2-VL's vision tower: patches rotated by their position, attention over the whole picture, merged squares. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { patchBlock, patchNorm } from "../patches/patch-block.ts";
import { embedPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs } from "../patches/patch-encoder.ts";
import { mergePatches } from "../patches/patch-merger.ts";
import { createPatchRotary } from "../patches/patch-rotary.ts";
import type { Qwen2VlVisionConfig } from "./config.ts";

/** Builds the tower as described by `TowerBuilder`. */
export function buildVisionTower(
  context: GraphContext,
  config: Qwen2VlVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  let hidden = embedPatches(context, config, prefix, pixels);
  const rotary = createPatchRotary(context, config, pixels, grid);
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = patchBlock(context, config, `${prefix}blocks.${layer}`, hidden, {
      attention: { rotary },
      perceptron: ["fc1", "fc2"],
    });
  }
  const normalised = patchNorm(context, `${prefix}merger.ln_q`, hidden, config.embedDim);
  return mergePatches(context, config, `${prefix}merger`, normalised, outFeatures);
}
