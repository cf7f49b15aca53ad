/** Gemma 4's vision tower: patches with positions in both directions, norms around blocks, clipped linear layers. */

import { maximum, minimum } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, gatherColumns, gatherRows, multiply, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { normaliseHeads } from "../decoder-graph/head-norm.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { attendPatches } from "../patches/patch-attention.ts";
import { createPatchRotary, type PatchRotary } from "../patches/patch-rotary.ts";
import { byPixel } from "../patches/pixel-order.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { Gemma4VisionConfig } from "./config.ts";
import { patchFeatures, type PatchInputs } from "./square-encoder.ts";

/**
 * Returns float [numPatches, hiddenSize], in the order of the patches: those of a square to be pooled one after the other.
 */
export function buildVisionTower(
  context: GraphContext,
  config: Gemma4VisionConfig,
  prefix: string,
  { pixels, grid }: PatchInputs,
): Value {
  const { headDim, numHeads, poolingSize: mergeSize, ropeTheta } = config;
  const sizes = { embedDim: numHeads * headDim, numHeads, mergeSize, ropeTheta };
  const rotary = createPatchRotary(context, sizes, pixels, grid);
  let hidden = embedPatches(context, config, prefix, pixels, rotary);
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = block(context, config, `${prefix}encoder.layers.${layer}`, hidden, rotary);
  }
  return hidden;
}

function embedPatches(
  context: GraphContext,
  config: Gemma4VisionConfig,
  prefix: string,
  pixels: Value,
  { row, column }: PatchRotary,
): Value {
  const { graph, precision } = context;
  const { hiddenSize, numPositions, patchSize } = config;
  const scalar = (name: string, value: number): Value => graph.constant(name, precision.activations, [1], [value]);
  const centred = subtract(graph, "pixels.centred", pixels, scalar("pixels.centre", 0.5));
  const scaled = multiply(graph, "pixels.scaled", centred, scalar("pixels.factor", 2));
  const name = `${prefix}patch_embedder.input_proj`;
  const layer = { name, inFeatures: patchFeatures(config), outFeatures: hiddenSize, hasBias: false };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const embedded = linear(context, byPixel(context, { patchSize }, scaled), layer, format);

  const tableName = `${prefix}patch_embedder.position_embedding_table`;
  const stored = parameter(context, tableName, [2, numPositions, hiddenSize]);
  const table = reshapeTo(graph, `${tableName}.flat`, stored, [2 * numPositions, hiddenSize]);
  const ofColumn = gatherRows(graph, "positions.of_column", table, column);
  const firstRow = int64Scalar(graph, numPositions);
  const ofRow = gatherRows(graph, "positions.of_row", table, add(graph, "positions.row", row, firstRow));
  const positions = add(graph, "positions.sum", ofColumn, ofRow);
  return add(graph, "embedded", embedded, positions);
}

function block(
  context: GraphContext,
  config: Gemma4VisionConfig,
  name: string,
  hidden: Value,
  rotary: PatchRotary,
): Value {
  const { graph } = context;
  const shape = { size: config.hiddenSize, epsilon: config.rmsNormEpsilon };
  const norm = (part: string, input: Value): Value => rmsNorm(context, `${name}.${part}`, input, shape);
  const attended = attention(context, config, `${name}.self_attn`, norm("input_layernorm", hidden), rotary);
  const middle = add(graph, `${name}.after_attention`, hidden, norm("post_attention_layernorm", attended));
  const perceived = perceptron(context, config, `${name}.mlp`, norm("pre_feedforward_layernorm", middle));
  return add(graph, `${name}.after_mlp`, middle, norm("post_feedforward_layernorm", perceived));
}

function attention(
  context: GraphContext,
  config: Gemma4VisionConfig,
  name: string,
  input: Value,
  rotary: PatchRotary,
): Value {
  const { graph, precision } = context;
  const { hiddenSize, numHeads, headDim, rmsNormEpsilon: epsilon } = config;
  const embedDim = numHeads * headDim;
  const projected = (part: string): Value =>
    clippedLinear(context, config, input, {
      name: `${name}.${part}_proj`,
      inFeatures: hiddenSize,
      outFeatures: embedDim,
    });
  const normalised = (part: string, weight: Value): Value =>
    normaliseHeads(context, `${name}.${part}_norm`, projected(part), { weight, epsilon });
  const queryNorm = parameter(context, `${name}.q_norm.weight`, [headDim]);
  // The products have no scale here, and attention divides them by this root.
  const root = graph.constant("attention.root", precision.activations, [1], [Math.sqrt(headDim)]);
  const query = normalised("q", multiply(graph, `${name}.q_norm.scaled`, queryNorm, root));
  const key = normalised("k", parameter(context, `${name}.k_norm.weight`, [headDim]));
  const ones = Array.from({ length: headDim }, () => 1);
  const value = normalised("v", graph.constant(`norm.ones.${headDim}`, precision.activations, [headDim], ones));
  const order = graph.constant("attention.halves_order", "int32", [embedDim], halvesOrder(config));
  const inHalves = (part: string, rows: Value): Value => gatherColumns(graph, `${name}.${part}.in_halves`, rows, order);
  const projections = { query: inHalves("query", query), key: inHalves("key", key), value };
  const attended = attendPatches(context, { embedDim, numHeads }, name, projections, { rotary });
  const output = { name: `${name}.o_proj`, inFeatures: embedDim, outFeatures: hiddenSize };
  return clippedLinear(context, config, attended, output);
}

/**
 * A head has its pairs for columns in its first half, and those for rows in the second; attention rotates the pairs of a
 * whole head: first the first numbers of all pairs (those for rows before those for columns), then the second ones.
 */
function halvesOrder({ numHeads, headDim }: Gemma4VisionConfig): number[] {
  const quarter = headDim / 4;
  return Array.from({ length: numHeads }, (_, head) => head * headDim).flatMap((start) =>
    [2, 0, 3, 1].flatMap((part) => Array.from({ length: quarter }, (_, index) => start + part * quarter + index)),
  );
}

/** `down(activation(gate(input)) * up(input))`. */
function perceptron(context: GraphContext, config: Gemma4VisionConfig, name: string, input: Value): Value {
  const { graph } = context;
  const { hiddenSize, intermediateSize, activation } = config;
  const raised = (part: string): Value =>
    clippedLinear(context, config, input, {
      name: `${name}.${part}_proj`,
      inFeatures: hiddenSize,
      outFeatures: intermediateSize,
    });
  const gate = applyActivation(graph, `${name}.act`, raised("gate"), activation);
  const gated = multiply(graph, `${name}.gated`, gate, raised("up"));
  const down = { name: `${name}.down_proj`, inFeatures: intermediateSize, outFeatures: hiddenSize };
  return clippedLinear(context, config, gated, down);
}

/** A linear layer, whose input and output are clipped if the configuration says so. */
function clippedLinear(
  context: GraphContext,
  { clipsLinears }: Gemma4VisionConfig,
  input: Value,
  {
    name,
    inFeatures,
    outFeatures,
  }: { readonly name: string; readonly inFeatures: number; readonly outFeatures: number },
): Value {
  const { graph, precision } = context;
  const layer = { name: `${name}.linear`, inFeatures, outFeatures, hasBias: false };
  if (!clipsLinears) return linear(context, input, layer, precision.vision);
  // Clip has no kernel for bfloat16 on cuda.
  const clipped = (part: "input" | "output", rows: Value): Value => {
    const raised = maximum(graph, `${name}.${part}.raised`, rows, parameter(context, `${name}.${part}_min`, []));
    return minimum(graph, `${name}.${part}`, raised, parameter(context, `${name}.${part}_max`, []));
  };
  return clipped("output", linear(context, clipped("input", input), layer, precision.vision));
}
