/** Qwen2.5-VL's vision tower: attention inside of windows in most layers, RMS norms, gated perceptrons. */
import { add } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import type { GraphContext } from "../graph-context.ts";
import { patchAttention, type PatchAttentionOptions } from "../qwen2-vl/patch-attention.ts";
import { embedPatches } from "../qwen2-vl/patch-embedding.ts";
import type { TowerInputs } from "../qwen2-vl/patch-encoder.ts";
import { mergePatches } from "../qwen2-vl/patch-merger.ts";
import { createPatchRotary } from "../qwen2-vl/patch-rotary.ts";
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
    hidden = block(context, config, `${prefix}blocks.${layer}`, hidden, { rotary, windows: isFull ? null : windows });
  }
  const norm = { size: config.embedDim, epsilon: RMS_NORM_EPSILON };
  const normalised = rmsNorm(context, `${prefix}merger.ln_q`, hidden, norm);
  return mergePatches(context, config, `${prefix}merger`, normalised, outFeatures);
}

function block(
  context: GraphContext,
  config: Qwen25VlVisionConfig,
  name: string,
  hidden: Value,
  options: PatchAttentionOptions,
): Value {
  const { graph } = context;
  const { embedDim } = config;
  const norm = { size: embedDim, epsilon: RMS_NORM_EPSILON };
  const input = rmsNorm(context, `${name}.norm1`, hidden, norm);
  const attended = patchAttention(context, config, `${name}.attn`, input, options);
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const perceptronInput = rmsNorm(context, `${name}.norm2`, middle, norm);
  const raised = gatedPerceptron(context, `${name}.mlp`, perceptronInput, {
    size: embedDim,
    intermediateSize: config.intermediateSize,
    hasBias: true,
    activation: "silu",
    format: context.precision.vision,
  });
  return add(graph, `${name}.after_mlp`, middle, raised);
}
