/**
 * The decoder of Gemma 3. Its inputs and outputs are those of `DecoderGraph`. Blocks have a norm before and after them,
 * norms multiply by one plus their weight, and layers with a window rotate with another base than those without.
 */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { add, gatherRows } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { DecoderInputs, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { decoderPerceptron } from "../decoder-graph/decoder-perceptron.ts";
import { normaliseQueryAndKey } from "../decoder-graph/head-norm.ts";
import { requireFloatRange } from "../decoder-graph/require-float-range.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { embedTokens, headTensor, outputLogits } from "../decoder-graph/vocabulary.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear } from "../linear.ts";
import { addAndNormalise } from "../rms-norm.ts";
import type { Gemma3TextConfig } from "./config.ts";

export interface Gemma3DecoderOptions {
  readonly config: Gemma3TextConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly headName: string;
  readonly acceptsImages: boolean;
  /** Length of the rotary tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
}

/** @throws EngineError `invalid_configuration` for float16, in which the activations of these models overflow. */
export function buildGemma3Decoder(context: GraphContext, options: Gemma3DecoderOptions): void {
  const { graph } = context;
  const { config, prefix, headName, acceptsImages } = options;
  requireFloatRange(context, "Gemma 3");
  const inputs = createDecoderInputs(context);
  const rotaries = { global: rotaryOf(context, options, "global"), local: rotaryOf(context, options, "local") };
  const { embedded } = embedTokens(context, inputs, {
    tableName: `${prefix}embed_tokens.weight`,
    size: config,
    acceptsImages,
    factor: Math.sqrt(config.hiddenSize),
  });
  let residual = embedded;
  let normalised = norm(context, config, `${prefix}layers.0.input_layernorm`, residual);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `${prefix}layers.${layer}`;
    const isLast = layer === config.numLayers - 1;
    const window = config.slidingWindows[layer] ?? null;
    const rotary = window === null ? rotaries.global : rotaries.local;
    let attended = attention(context, options, { name: `${name}.self_attn`, layer, input: normalised }, inputs, rotary);
    if (isLast) {
      // After the last attention no token depends on others, so only those whose logits are requested continue.
      attended = gatherRows(graph, "last.attended", attended, inputs.logitRows);
      residual = gatherRows(graph, "last.residual", residual, inputs.logitRows);
    }
    const output = { name: `${name}.self_attn.o_proj`, inFeatures: config.numHeads * config.headDim };
    const projected = linear(
      context,
      attended,
      { ...output, outFeatures: config.hiddenSize, hasBias: false },
      context.precision.linear,
    );
    const attentionOutput = norm(context, config, `${name}.post_attention_layernorm`, projected);
    [normalised, residual] = addAndNorm(
      context,
      config,
      `${name}.pre_feedforward_layernorm`,
      attentionOutput,
      residual,
    );
    const perceived = decoderPerceptron(context, config, `${name}.mlp`, normalised);
    const blockOutput = norm(context, config, `${name}.post_feedforward_layernorm`, perceived);
    const nextNorm = isLast ? `${prefix}norm` : `${prefix}layers.${layer + 1}.input_layernorm`;
    [normalised, residual] = addAndNorm(context, config, nextNorm, blockOutput, residual);
  }
  const names = { isTied: config.tieWordEmbeddings, tableName: `${prefix}embed_tokens`, headName };
  outputLogits(context, normalised, headTensor(context.weights, names), { ...config, softcap: config.logitSoftcap });
}

function rotaryOf(
  context: GraphContext,
  { config, maxModelLen }: Gemma3DecoderOptions,
  kind: "global" | "local",
): Rotary {
  return createRotary(context, {
    name: `rope.${kind}`,
    rope: kind === "global" ? config.globalRope : config.localRope,
    rotaryDim: config.headDim,
    maxModelLen,
    // Query and key are each multiplied by the root of the scores' scale.
    factor: config.queryScalar ** -0.25,
  });
}

/** One plus the weight of a norm, [size]. */
function gain(context: GraphContext, name: string, size: number): Value {
  const { graph, precision } = context;
  const one = graph.constant("norm.one", precision.activations, [1], [1]);
  return add(graph, `${name}.gain`, parameter(context, `${name}.weight`, [size]), one);
}

function norm(context: GraphContext, config: Gemma3TextConfig, name: string, input: Value): Value {
  const { hiddenSize, rmsNormEpsilon: epsilon } = config;
  const weight = gain(context, name, hiddenSize);
  return simplifiedLayerNormalization(context.graph, name, { input, weight, epsilon });
}

function addAndNorm(
  context: GraphContext,
  config: Gemma3TextConfig,
  name: string,
  input: Value,
  skip: Value,
): [normalised: Value, sum: Value] {
  const { hiddenSize, rmsNormEpsilon: epsilon } = config;
  const weight = gain(context, name, hiddenSize);
  const { normalised, sum } = addAndNormalise(context, name, { input, skip, weight, epsilon });
  return [normalised, sum];
}

/** [N, numHeads * headDim], before the output projection. */
function attention(
  context: GraphContext,
  { config, acceptsImages }: Gemma3DecoderOptions,
  { name, layer, input }: { readonly name: string; readonly layer: number; readonly input: Value },
  inputs: DecoderInputs,
  rotary: Rotary,
): Value {
  const { numHeads, numKvHeads, headDim, hiddenSize: inFeatures } = config;
  const parts = [
    ["q", numHeads],
    ["k", numKvHeads],
    ["v", numKvHeads],
  ] as const;
  const layers = parts.map(([part, heads]) => ({
    name: `${name}.${part}_proj`,
    inFeatures,
    outFeatures: heads * headDim,
    hasBias: false,
  }));
  const projected = jointLinear(context, `${name}.qkv`, input, layers, context.precision.linear);
  return inputs.attend({
    name,
    layer,
    projected: normaliseQueryAndKey(context, config, name, projected, (norm) => gain(context, norm, headDim)),
    rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: config.slidingWindows[layer] ?? null,
    // The rotary tables contain the scale.
    scale: 1,
    seenImages: acceptsImages ? "own" : "before",
  });
}
