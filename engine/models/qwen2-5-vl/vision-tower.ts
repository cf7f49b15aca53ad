/** Qwen2.5-VL's vision tower: attention inside of windows in most layers, RMS norms, gated perceptrons. */
import { quickGelu, simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { add, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";
import { patchAttention, type PatchAttentionOptions } from "../qwen2-vl/patch-attention.ts";
import { embedPatches } from "../qwen2-vl/patch-embedding.ts";
import type { TowerInputs } from "../qwen2-vl/patch-encoder.ts";
import { mergePatches } from "../qwen2-vl/patch-merger.ts";
import { createPatchRotary } from "../qwen2-vl/patch-rotary.ts";
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
  const normalised = norm(context, `${prefix}merger.ln_q`, hidden, config.embedDim);
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
  const input = norm(context, `${name}.norm1`, hidden, embedDim);
  const attended = patchAttention(context, config, `${name}.attn`, input, options);
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const perceptronInput = norm(context, `${name}.norm2`, middle, embedDim);
  return add(graph, `${name}.after_mlp`, middle, gatedPerceptron(context, config, `${name}.mlp`, perceptronInput));
}

/** `down(silu(gate(input)) * up(input))`, with biases. */
function gatedPerceptron(
  context: GraphContext,
  { embedDim, intermediateSize }: Qwen25VlVisionConfig,
  name: string,
  input: Value,
): Value {
  const { graph, precision } = context;
  const layers = ["gate_proj", "up_proj"].map((part) => ({
    name: `${name}.${part}`,
    inFeatures: embedDim,
    outFeatures: intermediateSize,
    hasBias: true,
  }));
  const projected = jointLinear(context, `${name}.gate_up`, input, layers, precision.vision);
  const widths = [intermediateSize, intermediateSize] as const;
  const [gate, up] = separate(graph, `${name}.gate_up`, projected, widths);
  const gated = multiply(graph, `${name}.gated`, quickGelu(graph, `${name}.silu`, gate, 1), up);
  const down = { name: `${name}.down_proj`, inFeatures: intermediateSize, outFeatures: embedDim, hasBias: true };
  return linear(context, gated, down, precision.vision);
}

function norm(context: GraphContext, name: string, input: Value, size: number): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  return simplifiedLayerNormalization(context.graph, name, { input, weight, epsilon: RMS_NORM_EPSILON });
}
