/** Pixtral's vision tower: patches rotated by their row and column, RMS norms, gated perceptrons, no biases. */
import { add } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import type { GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate, type LinearLayer } from "../linear.ts";
import { attendPatches } from "../patches/patch-attention.ts";
import { createPatchRotary, type PatchRotary } from "../patches/patch-rotary.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { PixtralVisionConfig } from "./config.ts";

const RMS_NORM_EPSILON = 1e-5;

export interface TowerInputs {
  /** float [numPatches, features], the patches of a square to be merged side by side, row by row of squares. */
  readonly pixels: Value;
  /** int64 [1, 3]: 1 (a still picture), rows and columns of patches. */
  readonly grid: Value;
  /** Indices of hidden states; 0 is before the first layer. */
  readonly featureLayers: readonly number[];
}

/** Returns for each feature layer float [numPatches, embedDim], in the order of the patches. */
export function buildVisionTower(
  context: GraphContext,
  config: PixtralVisionConfig,
  prefix: string,
  { pixels, grid, featureLayers }: TowerInputs,
): Value[] {
  const rotary = createPatchRotary(context, { ...config, alternatesFrequencies: true }, pixels, grid);
  let hidden = rmsNorm(context, `${prefix}ln_pre`, embedPatches(context, config, prefix, pixels), {
    size: config.embedDim,
    epsilon: RMS_NORM_EPSILON,
  });
  const states = [hidden];
  for (let layer = 0; layer < Math.max(...featureLayers); layer++) {
    hidden = block(context, config, `${prefix}transformer.layers.${layer}`, hidden, rotary);
    states.push(hidden);
  }
  return featureLayers.map((layer) => states[layer]!);
}

function embedPatches(
  context: GraphContext,
  { numChannels, patchSize, embedDim }: PixtralVisionConfig,
  prefix: string,
  pixels: Value,
): Value {
  const projection: LinearLayer = {
    name: `${prefix}patch_conv`,
    inFeatures: numChannels * patchSize ** 2,
    outFeatures: embedDim,
    hasBias: false,
    storedShape: [embedDim, numChannels, patchSize, patchSize],
  };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  return linear(context, pixels, projection, { kind: "plain", elementType: context.precision.activations });
}

function block(
  context: GraphContext,
  config: PixtralVisionConfig,
  name: string,
  hidden: Value,
  rotary: PatchRotary,
): Value {
  const { graph } = context;
  const shape = { size: config.embedDim, epsilon: RMS_NORM_EPSILON };
  const input = rmsNorm(context, `${name}.attention_norm`, hidden, shape);
  const attended = attention(context, config, `${name}.attention`, input, rotary);
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const perceptronInput = rmsNorm(context, `${name}.ffn_norm`, middle, shape);
  const raised = gatedPerceptron(context, `${name}.feed_forward`, perceptronInput, {
    size: config.embedDim,
    intermediateSize: config.intermediateSize,
    hasBias: false,
    activation: config.activation,
    format: context.precision.vision,
  });
  return add(graph, `${name}.after_feed_forward`, middle, raised);
}

function attention(
  context: GraphContext,
  config: PixtralVisionConfig,
  name: string,
  input: Value,
  rotary: PatchRotary,
): Value {
  const { graph, precision } = context;
  const { embedDim } = config;
  const projection = (part: string): LinearLayer => ({
    name: `${name}.${part}`,
    inFeatures: embedDim,
    outFeatures: embedDim,
    hasBias: false,
  });
  const layers = ["q_proj", "k_proj", "v_proj"].map(projection);
  const joint = jointLinear(context, `${name}.qkv`, input, layers, precision.vision);
  const [query, key, value] = separate(graph, `${name}.qkv`, joint, [embedDim, embedDim, embedDim] as const);
  const attended = attendPatches(context, config, name, { query, key, value }, { rotary });
  return linear(context, attended, projection("o_proj"), precision.vision);
}
