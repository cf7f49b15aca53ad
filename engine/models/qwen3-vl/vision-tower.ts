/** Qwen3-VL's vision tower: Qwen2-VL's with learned positions, and merged squares of several layers (DeepStack). */
import { add, concat, layerNormalization, reshape } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { patchAttention } from "../qwen2-vl/patch-attention.ts";
import { embedPatches } from "../qwen2-vl/patch-embedding.ts";
import type { TowerInputs } from "../qwen2-vl/patch-encoder.ts";
import { mergePatches } from "../qwen2-vl/patch-merger.ts";
import { createPatchRotary, type PatchRotary } from "../qwen2-vl/patch-rotary.ts";
import type { Qwen3VlVisionConfig } from "./config.ts";
import { resizedPositions } from "./resized-positions.ts";

const LAYER_NORM_EPSILON = 1e-6;
const mergerLayers = ["linear_fc1", "linear_fc2"] as const;

/** Builds the tower as described by `TowerBuilder`; the levels follow the last layer's features. */
export function buildVisionTower(
  context: GraphContext,
  config: Qwen3VlVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { graph } = context;
  const { embedDim, mergeSize } = config;
  const rotary = createPatchRotary(context, config, pixels, grid);
  const embedded = embedPatches(context, config, prefix, pixels, true);
  let hidden = add(graph, "patches.placed", embedded, resizedPositions(context, config, prefix, { grid, rotary }));
  const levels: Value[] = [];
  const squareWidth = embedDim * mergeSize * mergeSize;
  const squareShape = graph.constant("merger.shape", "int64", [2], [-1, squareWidth]);
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = block(context, config, `${prefix}blocks.${layer}`, hidden, rotary);
    if (!config.levelLayers.includes(layer)) continue;
    const name = `${prefix}deepstack_merger_list.${levels.length}`;
    // Here the norm is over whole squares.
    const squares = reshape(graph, `${name}.whole`, hidden, squareShape, ["numSquares", squareWidth]);
    const normalised = norm(context, `${name}.norm`, squares, squareWidth);
    levels.push(mergePatches(context, config, name, normalised, outFeatures, mergerLayers));
  }
  const normalised = norm(context, `${prefix}merger.norm`, hidden, embedDim);
  const merged = mergePatches(context, config, `${prefix}merger`, normalised, outFeatures, mergerLayers);
  return levels.length === 0 ? merged : concat(graph, "levels", [merged, ...levels], 1);
}

function block(
  context: GraphContext,
  config: Qwen3VlVisionConfig,
  name: string,
  hidden: Value,
  rotary: PatchRotary,
): Value {
  const { graph, precision } = context;
  const { embedDim, intermediateSize } = config;
  const normalised = norm(context, `${name}.norm1`, hidden, embedDim);
  const attended = patchAttention(context, config, `${name}.attn`, normalised, { rotary });
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const up = { name: `${name}.mlp.linear_fc1`, inFeatures: embedDim, outFeatures: intermediateSize, hasBias: true };
  const down = { name: `${name}.mlp.linear_fc2`, inFeatures: intermediateSize, outFeatures: embedDim, hasBias: true };
  const raised = linear(context, norm(context, `${name}.norm2`, middle, embedDim), up, precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, raised, config.activation);
  return add(graph, `${name}.after_mlp`, middle, linear(context, activated, down, precision.vision));
}

function norm(context: GraphContext, name: string, input: Value, size: number): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  const bias = parameter(context, `${name}.bias`, [size]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: LAYER_NORM_EPSILON });
}
