/**
 * The decoder graph of Qwen3.5: most layers are gated delta networks, and every few one attends to all tokens. Its
 * inputs and outputs are those of `DecoderGraph`.
 */
import { sigmoid } from "../../graph/recurrent-ops.ts";
import { add, gatherRows, multiply, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { DecoderInputs, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { decoderPerceptron } from "../decoder-graph/decoder-perceptron.ts";
import { joinHeads, splitHeads } from "../decoder-graph/head-rows.ts";
import { mixture } from "../decoder-graph/mixture.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { routerLogits } from "../decoder-graph/router.ts";
import { embedTokens, headTensor, outputLogits } from "../decoder-graph/vocabulary.ts";
import type { GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";
import type { Qwen35TextConfig } from "./config.ts";
import { gatedDeltaNet } from "./gated-delta-net.ts";
import { headNorm, residualNorm } from "./zero-centred-norm.ts";

export interface Qwen35DecoderOptions {
  readonly config: Qwen35TextConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly acceptsImages: boolean;
  /** Whether tokens have positions on three axes, which are then an input of the graph. */
  readonly takesPositions: boolean;
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
export function buildQwen35Decoder(context: GraphContext, options: Qwen35DecoderOptions): void {
  const { graph, precision } = context;
  const { config, prefix, acceptsImages } = options;
  const { rmsNormEpsilon: epsilon, layerTypes } = config;
  const inputs = createDecoderInputs(context);
  const rotary = rotaryOf(context, options);
  const tableName = `${prefix}embed_tokens.weight`;
  let hidden = embedTokens(context, inputs, { tableName, size: config, acceptsImages }).embedded;
  let residual: Value | null = null;
  let normalised: Value;
  const numBefore = { linear_attention: 0, full_attention: 0 };
  for (const [index, type] of layerTypes.entries()) {
    const name = `${prefix}layers.${index}`;
    [normalised, residual] = residualNorm(context, `${name}.input_layernorm`, { hidden, residual, epsilon });
    const isLinear = type === "linear_attention";
    const part = `${name}.${isLinear ? "linear_attn" : "self_attn"}`;
    const layerInput = { name: part, layer: numBefore[type]++, input: normalised };
    let mixed = isLinear
      ? gatedDeltaNet(context, config, layerInput, inputs)
      : gatedAttention(context, config, layerInput, { inputs, rotary });
    if (index === layerTypes.length - 1) {
      // After the last mixing of tokens none depends on others, so only those whose logits are requested continue.
      mixed = gatherRows(graph, "last.mixed", mixed, inputs.logitRows);
      residual = gatherRows(graph, "last.residual", residual, inputs.logitRows);
    }
    const output = {
      name: `${part}.${isLinear ? "out_proj" : "o_proj"}`,
      inFeatures: Number(mixed.shape[1]),
      outFeatures: config.hiddenSize,
      hasBias: !isLinear && config.hasAttentionBias,
    };
    hidden = linear(context, mixed, output, precision.linear);
    [normalised, residual] = residualNorm(context, `${name}.post_attention_layernorm`, { hidden, residual, epsilon });
    hidden = perceptron(context, config, `${name}.mlp`, normalised);
  }
  [normalised] = residualNorm(context, `${prefix}norm`, { hidden, residual, epsilon });
  const names = { isTied: config.tieWordEmbeddings, tableName: `${prefix}embed_tokens`, headName: "lm_head" };
  outputLogits(context, normalised, headTensor(context.weights, names), config);
}

/** The second block of a layer: [N, hiddenSize]. */
function perceptron(context: GraphContext, config: Qwen35TextConfig, name: string, input: Value): Value {
  const { graph } = context;
  const { hiddenSize, intermediateSize, experts } = config;
  const activation = "silu";
  if (experts === null) return decoderPerceptron(context, { hiddenSize, intermediateSize, activation }, name, input);
  const logits = routerLogits(context, `${name}.gate`, input, experts.numExperts);
  const from = { input, logits, router: `${name}.gate`, activation } as const;
  const chosen = mixture(context, { ...experts, normalises: true }, name, from);
  const sharedShape = { hiddenSize, intermediateSize: experts.sharedIntermediateSize, activation } as const;
  const shared = decoderPerceptron(context, sharedShape, `${name}.shared_expert`, input);
  const gate = sigmoid(graph, `${name}.shared_gate`, routerLogits(context, `${name}.shared_expert_gate`, input, 1));
  return add(graph, `${name}.sum`, chosen, multiply(graph, `${name}.shared`, shared, gate));
}

function rotaryOf(
  context: GraphContext,
  { config: { rope, rotaryDim, rotarySections }, takesPositions, maxModelLen }: Qwen35DecoderOptions,
): Rotary {
  const sections = takesPositions ? { sections: rotarySections, interleavesSections: true } : {};
  return createRotary(context, { rope, rotaryDim, maxModelLen, factor: 1, ...sections });
}

/** Attention whose heads are multiplied by gates, [N, numHeads * headDim], before the output projection. */
function gatedAttention(
  context: GraphContext,
  config: Qwen35TextConfig,
  { name, layer, input }: LayerInput,
  { inputs, rotary }: { readonly inputs: DecoderInputs; readonly rotary: Rotary },
): Value {
  const { graph, precision } = context;
  const { numHeads, numKvHeads, headDim, hiddenSize: inFeatures, hasAttentionBias: hasBias } = config;
  const [queryWidth, keyWidth] = [numHeads * headDim, numKvHeads * headDim];
  const widths = [2 * queryWidth, keyWidth, keyWidth] as const;
  const layers = ["q", "k", "v"].map((part, index) => ({
    name: `${name}.${part}_proj`,
    inFeatures,
    outFeatures: widths[index]!,
    hasBias,
  }));
  const projected = jointLinear(context, `${name}.qkv`, input, layers, precision.linear);
  const [queryAndGate, key, value] = separate(graph, `${name}.qkv`, projected, widths);
  const [query, gate] = queriesAndGates(context, name, queryAndGate, headDim);
  // Query and key are each multiplied by half of the scores' scale (its root), for the reason in `rotaryOf` of Llama.
  const norm = { headDim, epsilon: config.rmsNormEpsilon, factor: headDim ** -0.25 };
  const attended = inputs.attend({
    name,
    layer,
    projected: {
      kind: "separate",
      values: [headNorm(context, `${name}.q_norm`, query, norm), headNorm(context, `${name}.k_norm`, key, norm), value],
    },
    rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: null,
    scale: 1,
  });
  return multiply(graph, `${name}.gated`, attended, sigmoid(graph, `${name}.gate.sigmoid`, gate));
}

/** [N, numHeads * headDim] each, from [N, numHeads * 2 * headDim], where every head has its query and then its gate. */
function queriesAndGates(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  headDim: number,
): readonly [query: Value, gate: Value] {
  const pairs = splitHeads(graph, `${name}.q_heads`, rows, 2 * headDim);
  const width = Number(rows.shape[1]) / 2;
  const sizes = [headDim, headDim] as const;
  const [query, gate] = split(graph, `${name}.q_parts`, pairs, { axis: 1, sizes });
  return [joinHeads(graph, `${name}.query_rows`, query, width), joinHeads(graph, `${name}.gate_rows`, gate, width)];
}
