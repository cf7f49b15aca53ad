/** dots.ocr's vision tower: normalised patches, layers with RMS norms and gated perceptrons, and merged squares. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { gatedPatchBlock, patchNorm } from "../patches/patch-block.ts";
import { embedStillPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs, TowerNames } from "../patches/patch-encoder.ts";
import { mergePatches } from "../patches/patch-merger.ts";
import { createPatchRotary } from "../patches/patch-rotary.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { DotsVisionConfig } from "./config.ts";

const patchifier = "patch_embed.patchifier";
export const towerNames: TowerNames = { prefixes: ["vision_tower."], convolution: `${patchifier}.proj` };

const perceptronNames = { gate: "fc1", up: "fc3", down: "fc2" };

/** Builds the tower as described by `TowerBuilder`. */
export function buildVisionTower(
  context: GraphContext,
  config: DotsVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { embedDim, numLayers, rmsNormEpsilon: epsilon, hasBias, hasPostNorm } = config;
  const norm = { size: embedDim, epsilon };
  const embedded = embedStillPatches(context, config, `${prefix}${towerNames.convolution}`, pixels);
  let hidden = rmsNorm(context, `${prefix}${patchifier}.norm`, embedded, norm);
  const rotary = createPatchRotary(context, config, pixels, grid);
  for (let layer = 0; layer < numLayers; layer++) {
    hidden = gatedPatchBlock(context, config, `${prefix}blocks.${layer}`, hidden, {
      attention: { rotary, biases: { qkv: hasBias, output: hasBias } },
      epsilon,
      hasBias,
      activation: "silu",
      names: perceptronNames,
    });
  }
  if (hasPostNorm) hidden = rmsNorm(context, `${prefix}post_trunk_norm`, hidden, norm);
  const normalised = patchNorm(context, `${prefix}merger.ln_q`, hidden, embedDim);
  return mergePatches(context, config, `${prefix}merger`, normalised, outFeatures);
}
