/**
 * The decoder graph of LFM2 and LFM3: most layers are short gated convolutions, and every few one attends to tokens. Its
 * inputs and outputs are those of `DecoderGraph`.
 */
import { sigmoid } from "../../graph/recurrent-ops.ts";
import { gatherRows, multiply, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { DecoderInputs, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { normaliseQueryAndKey } from "../decoder-graph/head-norm.ts";
import { joinHeads, splitHeads } from "../decoder-graph/head-rows.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { embedTokens, headTensor, outputLogits } from "../decoder-graph/vocabulary.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear } from "../linear.ts";
import { residualRmsNorm, rmsNorm } from "../rms-norm.ts";
import type { LfmDecoderConfig, LfmLayerType } from "./config.ts";

export interface LfmDecoderOptions {
  readonly config: LfmDecoderConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly headName: string;
  readonly acceptsImages: boolean;
  /** Length of the rotary tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
}

interface LayerInput {
  readonly name: string;
  /** Index among the layers of its kind. */
  readonly layer: number;
  readonly input: Value;
}

/** See `buildDecoderGraph` of the Llama family for the residual stream. */
export function buildLfmDecoder(context: GraphContext, options: LfmDecoderOptions): void {
  const { graph, precision } = context;
  const { config, prefix, headName, acceptsImages } = options;
  const { hiddenSize: size, rmsNormEpsilon: epsilon, intermediateSize, layerTypes } = config;
  const inputs = createDecoderInputs(context);
  const mixing = { inputs, ...rotariesOf(context, options) };
  const tableName = `${prefix}embed_tokens.weight`;
  let hidden = embedTokens(context, inputs, { tableName, size: config, acceptsImages }).embedded;
  let residual: Value | null = null;
  let normalised: Value;
  const numBefore = { conv: 0, attention: 0 };
  const perceptron = {
    size,
    intermediateSize,
    hasBias: false,
    activation: "silu",
    format: precision.linear,
    names: { gate: "w1", up: "w3", down: "w2" },
  } as const;
  const normalisedOutput = (name: string, output: Value): Value =>
    config.normalisesOutputs ? rmsNorm(context, name, output, { size, epsilon }) : output;
  for (const [index, type] of layerTypes.entries()) {
    const name = `${prefix}layers.${index}`;
    [normalised, residual] = residualRmsNorm(context, `${name}.operator_norm`, { hidden, residual }, { size, epsilon });
    const isConvolution = type === "conv";
    const part = `${name}.${isConvolution ? "conv" : "self_attn"}`;
    const layer = numBefore[isConvolution ? "conv" : "attention"]++;
    const layerInput = { name: part, layer, input: normalised };
    let mixed = isConvolution
      ? shortConvolution(context, config, layerInput, inputs)
      : attention(context, config, layerInput, { type, ...mixing });
    if (index === layerTypes.length - 1) {
      // After the last mixing of tokens none depends on others, so only those whose logits are requested continue.
      mixed = gatherRows(graph, "last.mixed", mixed, inputs.logitRows);
      residual = gatherRows(graph, "last.residual", residual, inputs.logitRows);
    }
    const output = {
      name: `${part}.${isConvolution ? "out_proj" : config.names.attentionOutput}`,
      inFeatures: Number(mixed.shape[1]),
      outFeatures: size,
      hasBias: isConvolution ? config.hasConvolutionBias : config.hasAttentionBias,
    };
    hidden = normalisedOutput(`${name}.post_operator_norm`, linear(context, mixed, output, precision.linear));
    [normalised, residual] = residualRmsNorm(context, `${name}.ffn_norm`, { hidden, residual }, { size, epsilon });
    const perceived = gatedPerceptron(context, `${name}.feed_forward`, normalised, perceptron);
    hidden = normalisedOutput(`${name}.post_ffn_norm`, perceived);
  }
  const stream = { hidden, residual };
  [normalised] = residualRmsNorm(context, `${prefix}embedding_norm`, stream, { size, epsilon });
  const names = { isTied: config.tieWordEmbeddings, tableName: `${prefix}embed_tokens`, headName };
  outputLogits(context, normalised, headTensor(context.weights, names), config);
}

interface Rotaries {
  readonly rotary: Rotary;
  /** Left out if no layer attends to the last tokens only. */
  readonly slidingRotary?: Rotary;
}

function rotariesOf(context: GraphContext, { config, maxModelLen }: LfmDecoderOptions): Rotaries {
  const { headDim: rotaryDim, rope, sliding } = config;
  // Query and key are each multiplied by half of the scores' scale (its root), for the reason in `rotaryOf` of Llama.
  const sizes = { rotaryDim, maxModelLen, factor: rotaryDim ** -0.25 };
  const rotary = createRotary(context, { rope, ...sizes });
  if (sliding === undefined) return { rotary };
  return { rotary, slidingRotary: createRotary(context, { name: "rope.sliding", rope: sliding.rope, ...sizes }) };
}

/** A convolution of gated inputs, whose outputs are gated too: [N, hiddenSize], before the output projection. */
function shortConvolution(
  context: GraphContext,
  { hiddenSize, kernelSize, hasConvolutionBias: hasBias }: LfmDecoderConfig,
  { name, layer, input }: LayerInput,
  inputs: DecoderInputs,
): Value {
  const { graph, precision } = context;
  const projection = { name: `${name}.in_proj`, inFeatures: hiddenSize, outFeatures: 3 * hiddenSize, hasBias };
  const projected = linear(context, input, projection, precision.linear);
  const sizes = [hiddenSize, hiddenSize, hiddenSize] as const;
  const [inputGate, outputGate, value] = split(graph, `${name}.parts`, projected, { axis: 1, sizes });
  const convolved = inputs.convolve({
    name: `${name}.conv`,
    layer,
    input: multiply(graph, `${name}.gated_input`, inputGate, value),
    kernel: parameter(context, `${name}.conv.weight`, [hiddenSize, 1, kernelSize]),
    bias: hasBias ? parameter(context, `${name}.conv.bias`, [hiddenSize]) : null,
    activation: "none",
  });
  return multiply(graph, `${name}.gated_output`, outputGate, convolved);
}

/** [N, numHeads * headDim], before the output projection. */
function attention(
  context: GraphContext,
  config: LfmDecoderConfig,
  { name, layer, input }: LayerInput,
  {
    type,
    inputs,
    rotary,
    slidingRotary,
  }: Rotaries & { readonly type: Exclude<LfmLayerType, "conv">; readonly inputs: DecoderInputs },
): Value {
  const { numHeads, numKvHeads, headDim, hiddenSize: inFeatures, hasAttentionBias: hasBias } = config;
  const isSliding = type === "sliding_attention";
  const projection = (part: string, heads: number) => ({
    name: `${name}.${part}_proj`,
    inFeatures,
    outFeatures: heads * headDim,
    hasBias,
  });
  const layers = [projection("q", numHeads), projection("k", numKvHeads), projection("v", numKvHeads)];
  const projected = jointLinear(context, `${name}.qkv`, input, layers, context.precision.linear);
  const norms = { ...config, ...config.names };
  const weightOf = (norm: string): Value => parameter(context, `${norm}.weight`, [headDim]);
  const attended = inputs.attend({
    name,
    layer,
    projected: normaliseQueryAndKey(context, norms, name, projected, weightOf),
    rotary: isSliding && slidingRotary !== undefined ? slidingRotary : rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: isSliding ? (config.sliding?.window ?? null) : null,
    // The rotary tables contain the scale.
    scale: 1,
  });
  return config.hasHeadGates ? gatedHeads(context, config, { name, input, attended }) : attended;
}

/** Each head of `attended` times the sigmoid of its gate. The gates are small and never quantised. */
function gatedHeads(
  context: GraphContext,
  { numHeads, headDim, hiddenSize }: LfmDecoderConfig,
  { name, input, attended }: { readonly name: string; readonly input: Value; readonly attended: Value },
): Value {
  const { graph, precision } = context;
  const projection = { name: `${name}.gate_proj`, inFeatures: hiddenSize, outFeatures: numHeads, hasBias: false };
  const gates = linear(context, input, projection, { kind: "plain", elementType: precision.activations });
  const shares = splitHeads(graph, `${name}.gates`, sigmoid(graph, `${name}.gates.sigmoid`, gates), 1);
  const heads = splitHeads(graph, `${name}.heads`, attended, headDim);
  return joinHeads(graph, `${name}.gated`, multiply(graph, `${name}.gated_heads`, heads, shares), numHeads * headDim);
}
