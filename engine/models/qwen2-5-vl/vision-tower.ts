/** Qwen2.5-VL's vision tower: attention inside of windows in most layers, RMS norms, gated perceptrons. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { gatedPatchBlock } from "../patches/patch-block.ts";
import { embedPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs } from "../patches/patch-encoder.ts";
import { mergePatches } from "../patches/patch-merger.ts";
import { createPatchRotary } from "../patches/patch-rotary.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { Qwen25VlVisionConfig } from "./config.ts";
import { createWindows } from "./windows.ts";

const RMS_NORM_EPSILON = 1e-6;

/**
 * Builds the tower as described by `TowerBuilder`. transformers sorts the patches by windows once; here they stay in
 * their order, and only attention divides them.
 */
export function buildVisionTower(
  context: GraphContext,
  config: Qwen25VlVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  let hidden = embedPatches(context, config, prefix, pixels);
  const rotary = createPatchRotary(context, config, pixels, grid);
  const windows = createWindows(context, config, pixels, grid);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const isFull = config.fullAttentionLayers.has(layer);
    hidden = gatedPatchBlock(context, config, `${prefix}blocks.${layer}`, hidden, {
      attention: { rotary, windows: isFull ? null : windows },
      epsilon: RMS_NORM_EPSILON,
      hasBias: true,
      activation: "silu",
    });
  }
  const norm = { size: config.embedDim, epsilon: RMS_NORM_EPSILON };
  const normalised = rmsNorm(context, `${prefix}merger.ln_q`, hidden, norm);
  return mergePatches(context, config, `${prefix}merger`, normalised, outFeatures);
}
