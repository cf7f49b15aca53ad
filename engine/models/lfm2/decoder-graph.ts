/**
 * The decoder graph of LFM2: most layers are short gated convolutions, and every few one attends to all tokens. Its
 * inputs and outputs are those of `DecoderGraph`.
 */
import { gatherRows, multiply, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { DecoderInputs, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { normaliseQueryAndKey } from "../decoder-graph/head-norm.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { embedTokens, headTensor, outputLogits } from "../decoder-graph/vocabulary.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear } from "../linear.ts";
import { residualRmsNorm } from "../rms-norm.ts";
import type { Lfm2Config } from "./config.ts";

export interface Lfm2DecoderOptions {
  readonly config: Lfm2Config;
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
export function buildLfm2Decoder(context: GraphContext, options: Lfm2DecoderOptions): void {
  const { graph, precision } = context;
  const { config, prefix, headName, acceptsImages } = options;
  const { hiddenSize: size, rmsNormEpsilon: epsilon, intermediateSize, layerTypes } = config;
  const inputs = createDecoderInputs(context);
  const rotary = createRotary(context, {
    rope: config.rope,
    rotaryDim: config.headDim,
    maxModelLen: options.maxModelLen,
    // Query and key are each multiplied by half of the scores' scale (its root), for the reason in `rotaryOf` of Llama.
    factor: config.headDim ** -0.25,
  });
  const tableName = `${prefix}embed_tokens.weight`;
  let hidden = embedTokens(context, inputs, { tableName, size: config, acceptsImages }).embedded;
  let residual: Value | null = null;
  let normalised: Value;
  const numBefore = { conv: 0, full_attention: 0 };
  const perceptron = {
    size,
    intermediateSize,
    hasBias: false,
    activation: "silu",
    format: precision.linear,
    names: { gate: "w1", up: "w3", down: "w2" },
  } as const;
  for (const [index, type] of layerTypes.entries()) {
    const name = `${prefix}layers.${index}`;
    [normalised, residual] = residualRmsNorm(context, `${name}.operator_norm`, { hidden, residual }, { size, epsilon });
    const part = `${name}.${type === "conv" ? "conv" : "self_attn"}`;
    const layerInput = { name: part, layer: numBefore[type]++, input: normalised };
    let mixed =
      type === "conv"
        ? shortConvolution(context, config, layerInput, inputs)
        : attention(context, config, layerInput, { inputs, rotary });
    if (index === layerTypes.length - 1) {
      // After the last mixing of tokens none depends on others, so only those whose logits are requested continue.
      mixed = gatherRows(graph, "last.mixed", mixed, inputs.logitRows);
      residual = gatherRows(graph, "last.residual", residual, inputs.logitRows);
    }
    const output = {
      name: `${part}.out_proj`,
      inFeatures: Number(mixed.shape[1]),
      outFeatures: size,
      hasBias: type === "conv" && config.hasConvolutionBias,
    };
    hidden = linear(context, mixed, output, precision.linear);
    [normalised, residual] = residualRmsNorm(context, `${name}.ffn_norm`, { hidden, residual }, { size, epsilon });
    hidden = gatedPerceptron(context, `${name}.feed_forward`, normalised, perceptron);
  }
  const stream = { hidden, residual };
  [normalised] = residualRmsNorm(context, `${prefix}embedding_norm`, stream, { size, epsilon });
  const names = { isTied: config.tieWordEmbeddings, tableName: `${prefix}embed_tokens`, headName };
  outputLogits(context, normalised, headTensor(context.weights, names), config);
}

/** A convolution of gated inputs, whose outputs are gated too: [N, hiddenSize], before the output projection. */
function shortConvolution(
  context: GraphContext,
  { hiddenSize, kernelSize, hasConvolutionBias: hasBias }: Lfm2Config,
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
  config: Lfm2Config,
  { name, layer, input }: LayerInput,
  { inputs, rotary }: { readonly inputs: DecoderInputs; readonly rotary: Rotary },
): Value {
  const { numHeads, numKvHeads, headDim, hiddenSize: inFeatures } = config;
  const projection = (part: string, heads: number) => ({
    name: `${name}.${part}_proj`,
    inFeatures,
    outFeatures: heads * headDim,
    hasBias: false,
  });
  const layers = [projection("q", numHeads), projection("k", numKvHeads), projection("v", numKvHeads)];
  const projected = jointLinear(context, `${name}.qkv`, input, layers, context.precision.linear);
  const norms = { ...config, headNormName: "layernorm" };
  const weightOf = (norm: string): Value => parameter(context, `${norm}.weight`, [headDim]);
  return inputs.attend({
    name,
    layer,
    projected: normaliseQueryAndKey(context, norms, name, projected, weightOf),
    rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: null,
    // The rotary tables contain the scale.
    scale: 1,
  });
}
