/** Layers of the towers of Qwen-VL and GLM-V: attention between patches, then a perceptron. */
import { add, layerNormalization } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation, type ActivationName } from "../activation.ts";
import { gatedPerceptron, type PerceptronNames } from "../gated-perceptron.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { rmsNorm } from "../rms-norm.ts";
import { patchAttention, type PatchAttentionOptions } from "./patch-attention.ts";

const LAYER_NORM_EPSILON = 1e-6;

interface PatchBlockConfig {
  readonly embedDim: number;
  readonly numHeads: number;
  readonly intermediateSize: number;
}

export interface PatchBlockOptions {
  readonly attention: PatchAttentionOptions;
  /** Names of the perceptron's layers in the checkpoint. */
  readonly perceptron: readonly [up: string, down: string];
}

/**
 * A layer with layer norms and a plain perceptron.
 *
 * @param hidden float [numPatches, embedDim], as is the result.
 */
export function patchBlock(
  context: GraphContext,
  config: PatchBlockConfig & { readonly activation: ActivationName },
  name: string,
  hidden: Value,
  { attention, perceptron: [upName, downName] }: PatchBlockOptions,
): Value {
  const { graph, precision } = context;
  const { embedDim, intermediateSize } = config;
  const normalised = patchNorm(context, `${name}.norm1`, hidden, embedDim);
  const attended = patchAttention(context, config, `${name}.attn`, normalised, attention);
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const up = { name: `${name}.mlp.${upName}`, inFeatures: embedDim, outFeatures: intermediateSize, hasBias: true };
  const down = { name: `${name}.mlp.${downName}`, inFeatures: intermediateSize, outFeatures: embedDim, hasBias: true };
  const raised = linear(context, patchNorm(context, `${name}.norm2`, middle, embedDim), up, precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, raised, config.activation);
  return add(graph, `${name}.after_mlp`, middle, linear(context, activated, down, precision.vision));
}

/** The layer norm of rows of `size`, in blocks and before mergers. */
export function patchNorm(context: GraphContext, name: string, input: Value, size: number): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  const bias = parameter(context, `${name}.bias`, [size]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: LAYER_NORM_EPSILON });
}

export interface GatedPatchBlockOptions {
  readonly attention: PatchAttentionOptions;
  /** Of the RMS norms. */
  readonly epsilon: number;
  /** Whether the perceptron's layers have biases. */
  readonly hasBias: boolean;
  readonly activation: ActivationName;
  /** Of the perceptron's layers. */
  readonly names?: PerceptronNames;
}

/**
 * A layer with RMS norms and a gated perceptron.
 *
 * @param hidden float [numPatches, embedDim], as is the result.
 */
export function gatedPatchBlock(
  context: GraphContext,
  config: PatchBlockConfig,
  name: string,
  hidden: Value,
  { attention, epsilon, hasBias, activation, names }: GatedPatchBlockOptions,
): Value {
  const { graph, precision } = context;
  const norm = { size: config.embedDim, epsilon };
  const normalised = rmsNorm(context, `${name}.norm1`, hidden, norm);
  const attended = patchAttention(context, config, `${name}.attn`, normalised, attention);
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const raised = gatedPerceptron(context, `${name}.mlp`, rmsNorm(context, `${name}.norm2`, middle, norm), {
    size: config.embedDim,
    intermediateSize: config.intermediateSize,
    hasBias,
    activation,
    format: precision.vision,
    ...(names && { names }),
  });
  return add(graph, `${name}.after_mlp`, middle, raised);
}
