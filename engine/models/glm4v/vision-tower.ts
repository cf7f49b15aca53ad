/** The vision tower of GLM-4.1V and GLM-OCR: RMS norms, gated perceptrons, and squares that a convolution merges. */
import { add, layerNormalization } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { gatedPatchBlock, type GatedPatchBlockOptions } from "../patches/patch-block.ts";
import { embedPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs } from "../patches/patch-encoder.ts";
import { createPatchRotary } from "../patches/patch-rotary.ts";
import { squareRows } from "../patches/square-rows.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { Glm4vVisionConfig } from "./config.ts";
import { bicubicPositions } from "./positions.ts";

/** PyTorch's default. */
const MERGER_NORM_EPSILON = 1e-5;

/** Builds the tower as described by `TowerBuilder`. */
export function buildVisionTower(
  context: GraphContext,
  config: Glm4vVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { graph } = context;
  const norm = { size: config.embedDim, epsilon: config.epsilon };
  const rotary = createPatchRotary(context, config, pixels, grid);
  let hidden = embedPatches(context, config, prefix, pixels, true);
  const { positionsPerSide } = config;
  if (positionsPerSide !== null) {
    const normalised = rmsNorm(context, `${prefix}post_conv_layernorm`, hidden, norm);
    const positions = bicubicPositions(context, { ...config, positionsPerSide }, prefix, { grid, rotary });
    hidden = add(graph, "patches.placed", normalised, positions);
  }
  const block: GatedPatchBlockOptions = {
    attention: {
      rotary,
      biases: { qkv: config.hasQkvBias, output: config.hasOtherBiases },
      normEpsilon: config.normalisesQueryAndKey ? config.epsilon : null,
    },
    epsilon: config.epsilon,
    hasBias: config.hasOtherBiases,
    activation: config.activation,
  };
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = gatedPatchBlock(context, config, `${prefix}blocks.${layer}`, hidden, block);
  }
  const normalised = rmsNorm(context, `${prefix}post_layernorm`, hidden, norm);
  return mergeSquares(context, config, prefix, normalised, outFeatures);
}

/** [numPatches, embedDim] to [numSquares, outFeatures]: a convolution over squares, and a projection with a gate. */
function mergeSquares(
  context: GraphContext,
  { embedDim, mergeSize, mergerWidth, activation }: Glm4vVisionConfig,
  prefix: string,
  hidden: Value,
  outFeatures: number,
): Value {
  const { graph, precision } = context;
  const patchesPerSquare = mergeSize ** 2;
  const rows = squareRows(context, hidden, { size: embedDim, patchesPerSquare });
  const convolution = {
    name: `${prefix}downsample`,
    inFeatures: embedDim * patchesPerSquare,
    outFeatures,
    hasBias: true,
    storedShape: [outFeatures, embedDim, mergeSize, mergeSize],
  };
  // Quantised weights are made from matrices, and this is a small part of the work.
  const merged = linear(context, rows, convolution, { kind: "plain", elementType: precision.activations });
  const projection = { name: `${prefix}merger.proj`, inFeatures: outFeatures, outFeatures, hasBias: false };
  const norm = `${prefix}merger.post_projection_norm`;
  const normalised = layerNormalization(graph, norm, linear(context, merged, projection, precision.vision), {
    weight: parameter(context, `${norm}.weight`, [outFeatures]),
    bias: parameter(context, `${norm}.bias`, [outFeatures]),
    epsilon: MERGER_NORM_EPSILON,
  });
  const activated = applyActivation(graph, `${prefix}merger.gelu`, normalised, "gelu");
  return gatedPerceptron(context, `${prefix}merger`, activated, {
    size: outFeatures,
    intermediateSize: mergerWidth,
    hasBias: false,
    activation,
    format: context.precision.vision,
  });
}
