/** Qwen2-VL's vision tower: patches rotated by their position, attention over the whole picture, merged squares. */
import { add, layerNormalization } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { Qwen2VlVisionConfig } from "./config.ts";
import { patchAttention } from "./patch-attention.ts";
import { embedPatches } from "./patch-embedding.ts";
import type { TowerInputs } from "./patch-encoder.ts";
import { mergePatches } from "./patch-merger.ts";
import { createPatchRotary, type PatchRotary } from "./patch-rotary.ts";

const LAYER_NORM_EPSILON = 1e-6;

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
    hidden = block(context, config, `${prefix}blocks.${layer}`, hidden, rotary);
  }
  const normalised = norm(context, `${prefix}merger.ln_q`, hidden, config.embedDim);
  return mergePatches(context, config, `${prefix}merger`, normalised, outFeatures);
}

function block(
  context: GraphContext,
  config: Qwen2VlVisionConfig,
  name: string,
  hidden: Value,
  rotary: PatchRotary,
): Value {
  const { graph, precision } = context;
  const { embedDim, intermediateSize } = config;
  const attended = patchAttention(context, config, `${name}.attn`, norm(context, `${name}.norm1`, hidden, embedDim), {
    rotary,
  });
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const up = { name: `${name}.mlp.fc1`, inFeatures: embedDim, outFeatures: intermediateSize, hasBias: true };
  const down = { name: `${name}.mlp.fc2`, inFeatures: intermediateSize, outFeatures: embedDim, hasBias: true };
  const raised = linear(context, norm(context, `${name}.norm2`, middle, embedDim), up, precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, raised, config.activation);
  return add(graph, `${name}.after_mlp`, middle, linear(context, activated, down, precision.vision));
}

function norm(context: GraphContext, name: string, input: Value, size: number): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  const bias = parameter(context, `${name}.bias`, [size]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: LAYER_NORM_EPSILON });
}
