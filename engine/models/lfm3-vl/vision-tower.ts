/** LFM3-VL's vision tower: gated convolutions, layers with grouped-query attention, and squares that a projector merges. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, expand, layerNormalization } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";
import { buildProjector, projectorPrefixes } from "../llava/definition.ts";
import { attendPatches, normaliseHeads } from "../patches/patch-attention.ts";
import { embedFlatPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs, TowerNames } from "../patches/patch-encoder.ts";
import { createPatchRotary, patches, type PatchRotary } from "../patches/patch-rotary.ts";
import { rmsNorm } from "../rms-norm.ts";
import { findPrefix } from "../weight-source.ts";
import type { Lfm3VisionConfig } from "./config.ts";
import { createPatchPlane, spatialConvolution } from "./spatial-convolution.ts";

export const towerNames: TowerNames = { prefixes: ["model.vision_tower.", "vision_tower."], convolution: "patchifier" };

const perceptronNames = { gate: "w1", up: "w3", down: "w2" };

const PROJECTOR_NORM_EPSILON = 1e-6;

/** Builds the tower and the projector as described by `TowerBuilder`. */
export function buildVisionTower(
  context: GraphContext,
  config: Lfm3VisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { graph, precision } = context;
  const { embedDim, intermediateSize, epsilon, layerTypes } = config;
  const norm = { size: embedDim, epsilon };
  const rotary = createPatchRotary(context, config, pixels, grid);
  const plane = createPatchPlane(context, config, grid);
  const embedded = embedFlatPatches(context, config, `${prefix}${towerNames.convolution}`, pixels);
  let hidden = rmsNorm(context, `${prefix}embedding_norm`, embedded, norm);
  for (const [layer, type] of layerTypes.entries()) {
    const name = `${prefix}layers.${layer}`;
    const normalised = rmsNorm(context, `${name}.operator_norm`, hidden, norm);
    const mixed =
      type === "conv"
        ? spatialConvolution(context, config, `${name}.conv`, normalised, plane)
        : groupedAttention(context, config, `${name}.self_attn`, normalised, rotary);
    const middle = add(graph, `${name}.after_mixing`, hidden, mixed);
    const perceived = gatedPerceptron(
      context,
      `${name}.feed_forward`,
      rmsNorm(context, `${name}.ffn_norm`, middle, norm),
      {
        size: embedDim,
        intermediateSize,
        hasBias: false,
        activation: "silu",
        format: precision.vision,
        names: perceptronNames,
      },
    );
    hidden = add(graph, `${name}.after_perceptron`, middle, perceived);
  }
  return projectSquares(context, config, hidden, outFeatures);
}

/** float [numPatches, embedDim], as is `input`, with the output's projection. */
function groupedAttention(
  context: GraphContext,
  config: Lfm3VisionConfig,
  name: string,
  input: Value,
  rotary: PatchRotary,
): Value {
  const { graph, precision } = context;
  const { embedDim, numHeads, numKvHeads, epsilon } = config;
  const headDim = embedDim / numHeads;
  const kvWidth = numKvHeads * headDim;
  const projection = (part: string, outFeatures: number) => ({
    name: `${name}.${part}_proj`,
    inFeatures: embedDim,
    outFeatures,
    hasBias: false,
  });
  const layers = [projection("q", embedDim), projection("k", kvWidth), projection("v", kvWidth)];
  const projected = jointLinear(context, `${name}.qkv`, input, layers, precision.vision);
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, [embedDim, kvWidth, kvWidth] as const);
  const attended = attendPatches(
    context,
    config,
    name,
    {
      query: normaliseHeads(context, `${name}.q_layernorm`, query, { headDim, epsilon }),
      key: forEachQuery(context, config, normaliseHeads(context, `${name}.k_layernorm`, key, { headDim, epsilon })),
      value: forEachQuery(context, config, value),
    },
    { rotary },
  );
  const output = { name: `${name}.out_proj`, inFeatures: embedDim, outFeatures: embedDim, hasBias: false };
  return linear(context, attended, output, precision.vision);
}

/** Each head of keys or values once for every head of queries that reads it: float [numPatches, embedDim]. */
function forEachQuery(
  { graph }: GraphContext,
  { embedDim, numHeads, numKvHeads }: Lfm3VisionConfig,
  rows: Value,
): Value {
  if (numHeads === numKvHeads) return rows;
  const headDim = embedDim / numHeads;
  const groupSize = numHeads / numKvHeads;
  const count = `${patches} * ${numKvHeads}`;
  const heads = reshapeTo(graph, `${rows.name}.heads`, rows, [count, 1, headDim]);
  const target = graph.constant(`group.${groupSize}`, "int64", [3], [1, groupSize, 1]);
  const repeated = expand(graph, `${rows.name}.repeated`, heads, target, [count, groupSize, headDim]);
  return reshapeTo(graph, `${rows.name}.of_queries`, repeated, [patches, embedDim]);
}

/** The patches of each square, which come one after the other, as one row: to [numSquares, outFeatures]. */
function projectSquares(
  context: GraphContext,
  { embedDim, mergeSize, projector: { width, activation, hasBias } }: Lfm3VisionConfig,
  hidden: Value,
  outFeatures: number,
): Value {
  const { graph, weights } = context;
  const norm = `${findPrefix(weights, projectorPrefixes, "layer_norm.weight")}layer_norm`;
  const normalised = layerNormalization(graph, norm, hidden, {
    weight: parameter(context, `${norm}.weight`, [embedDim]),
    bias: parameter(context, `${norm}.bias`, [embedDim]),
    epsilon: PROJECTOR_NORM_EPSILON,
  });
  const inFeatures = embedDim * mergeSize ** 2;
  const squares = reshapeTo(graph, "squares", normalised, ["numSquares", inFeatures]);
  return buildProjector(context, { activation, hasBias, inFeatures, hiddenFeatures: width, outFeatures }, squares);
}
