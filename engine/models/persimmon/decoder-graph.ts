/** The decoder graph of Persimmon. Its inputs and outputs are those of `DecoderGraph`. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, gatherRows, layerNormalization, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { DecoderInputs, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { tokens } from "../decoder-graph/sizes.ts";
import { embedTokens, headTensor, outputLogits } from "../decoder-graph/vocabulary.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import type { PersimmonConfig } from "./config.ts";

export interface PersimmonOptions {
  readonly config: PersimmonConfig;
  /** Prefix of the decoder's own tensors, e.g. "model.language_model." */
  readonly prefix: string;
  readonly headName: string;
  readonly acceptsImages: boolean;
  /** Length of the rotary tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
}

/** Pre-norm transformer with biases everywhere and layer norms that subtract the mean. */
export function buildPersimmonGraph(context: GraphContext, options: PersimmonOptions): void {
  const { graph } = context;
  const { config, prefix, headName, acceptsImages, maxModelLen } = options;
  const inputs = createDecoderInputs(context);
  const { rope, rotaryDim } = config;
  // Only a part of a head is rotated, so the rotary tables cannot contain the scores' scale.
  const rotary = createRotary(context, { rope, rotaryDim, maxModelLen, factor: 1 });
  const tableName = `${prefix}embed_tokens.weight`;

  let { embedded: hidden } = embedTokens(context, inputs, { tableName, size: config, acceptsImages });
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `${prefix}layers.${layer}`;
    const normalised = norm(context, config, `${name}.input_layernorm`, hidden);
    let attended = attention(context, config, { name: `${name}.self_attn`, layer, input: normalised }, inputs, rotary);
    if (layer === config.numLayers - 1) {
      // After the last attention no token depends on others, so only those whose logits are requested continue.
      attended = gatherRows(graph, "last.attended", attended, inputs.logitRows);
      hidden = gatherRows(graph, "last.hidden", hidden, inputs.logitRows);
    }
    const projected = linear(context, attended, square(config, `${name}.self_attn.dense`), context.precision.linear);
    hidden = add(graph, `${name}.after_attention`, hidden, projected);
    const perceptronInput = norm(context, config, `${name}.post_attention_layernorm`, hidden);
    hidden = add(graph, `${name}.after_mlp`, perceptron(context, config, `${name}.mlp`, perceptronInput), hidden);
  }
  const last = norm(context, config, `${prefix}final_layernorm`, hidden);
  const names = { isTied: config.tieWordEmbeddings, tableName: `${prefix}embed_tokens`, headName };
  outputLogits(context, last, headTensor(context.weights, names), config);
}

/** [N, hiddenSize], before the output projection. */
function attention(
  context: GraphContext,
  config: PersimmonConfig,
  { name, layer, input }: { readonly name: string; readonly layer: number; readonly input: Value },
  inputs: DecoderInputs,
  rotary: Rotary,
): Value {
  const { graph, precision } = context;
  const { hiddenSize, numHeads, headDim, normalisesQueryAndKey } = config;
  const fusedLayer = {
    name: `${name}.query_key_value`,
    inFeatures: hiddenSize,
    outFeatures: 3 * hiddenSize,
    hasBias: true,
  };
  const fused = linear(context, input, fusedLayer, precision.linear);
  // A token's features are query, key and value of its first head, then of its second, and so on.
  const perHead = reshapeTo(graph, `${name}.per_head`, fused, ["N * numHeads", 3 * headDim]);
  const parts = split(graph, `${name}.parts`, perHead, { axis: 1, sizes: [headDim, headDim, headDim] });
  const rows = (part: string, value: Value): Value => reshapeTo(graph, `${name}.${part}`, value, [tokens, hiddenSize]);
  const normed = (part: string, value: Value): Value => {
    const weights = { size: headDim, epsilon: config.layerNormEpsilon };
    return normalisesQueryAndKey ? namedNorm(context, `${name}.${part}_layernorm`, value, weights) : value;
  };
  const [query, key, value] = parts;
  return inputs.attend({
    name,
    layer,
    projected: {
      kind: "separate",
      values: [rows("q", normed("q", query)), rows("k", normed("k", key)), rows("v", value)],
    },
    rotary,
    numHeads,
    numKvHeads: numHeads,
    headDim,
    localWindowSize: null,
    scale: null,
  });
}

function perceptron(context: GraphContext, config: PersimmonConfig, name: string, input: Value): Value {
  const { hiddenSize, intermediateSize } = config;
  const { linear: format } = context.precision;
  const layer = (part: string, inFeatures: number, outFeatures: number): LinearLayer => ({
    name: `${name}.${part}`,
    inFeatures,
    outFeatures,
    hasBias: true,
  });
  const up = linear(context, input, layer("dense_h_to_4h", hiddenSize, intermediateSize), format);
  const activated = applyActivation(context.graph, `${name}.activation`, up, config.activation);
  return linear(context, activated, layer("dense_4h_to_h", intermediateSize, hiddenSize), format);
}

function square({ hiddenSize }: PersimmonConfig, name: string): LinearLayer {
  return { name, inFeatures: hiddenSize, outFeatures: hiddenSize, hasBias: true };
}

function norm(context: GraphContext, config: PersimmonConfig, name: string, input: Value): Value {
  return namedNorm(context, name, input, { size: config.hiddenSize, epsilon: config.layerNormEpsilon });
}

function namedNorm(
  context: GraphContext,
  name: string,
  input: Value,
  { size, epsilon }: { readonly size: number; readonly epsilon: number },
): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  const bias = parameter(context, `${name}.bias`, [size]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon });
}
