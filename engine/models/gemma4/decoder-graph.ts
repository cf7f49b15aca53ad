/**
 * The decoder of Gemma 4. Its inputs and outputs are those of `DecoderGraph`. Blocks have a norm before and after them,
 * values have a norm without weights, each layer may have embeddings of its own, and the last layers may read the keys
 * and values of earlier ones.
 */
import { invariant } from "../../contract/errors.ts";
import { gatherRows, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { DecoderInputs, DecoderTail, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { decoderPerceptron } from "../decoder-graph/decoder-perceptron.ts";
import { normaliseHeads } from "../decoder-graph/head-norm.ts";
import { requireFloatRange } from "../decoder-graph/require-float-range.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { embedTokens, headTensor, outputLogits } from "../decoder-graph/vocabulary.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";
import { addAndNormalise, rmsNorm } from "../rms-norm.ts";
import { withExperts } from "./experts.ts";
import { addLayerEmbedding, layerEmbeddings, withoutMedia } from "./layer-embeddings.ts";
import type { Gemma4Layer, Gemma4TextConfig } from "./text-config.ts";

export interface Gemma4DecoderOptions {
  readonly config: Gemma4TextConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly headName: string;
  readonly acceptsImages: boolean;
  /** Tokens that stand for pictures, videos and sounds. */
  readonly mediaTokenIds: readonly number[];
  /** Length of the rotary tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
}

/** Keys and values of a layer, normalised and not rotated. */
interface KeyValue {
  readonly key: Value;
  readonly value: Value;
}

/** @throws EngineError `invalid_configuration` for float16, in which the activations of these models overflow. */
export function buildGemma4Decoder(context: GraphContext, options: Gemma4DecoderOptions): void {
  const { graph, precision } = context;
  const { config, prefix, headName, acceptsImages } = options;
  requireFloatRange(context, "Gemma 4");
  let inputs = createDecoderInputs(context);
  const tokenIds = withoutMedia(context, inputs.tokenIds, options.mediaTokenIds, config.padTokenId);
  const { embedded } = embedTokens(
    context,
    { ...inputs, tokenIds },
    {
      tableName: `${prefix}embed_tokens.weight`,
      size: config,
      acceptsImages,
      factor: Math.sqrt(config.hiddenSize),
    },
  );
  const ownEmbeddings = layerEmbeddings(context, config, prefix, { tokenIds, embedded });
  const rotaryOf = createRotaries(context, options);
  const known = new Map<number, KeyValue>();
  let hidden = embedded;
  let tail: DecoderTail | null = null;
  for (const [index, layer] of config.layers.entries()) {
    const name = `${prefix}layers.${index}`;
    if (tail === null && layer.kvSource !== index && !config.seesWholeImages) {
      // As in transformers: the rest only reads keys and values, so tokens without requested logits stay behind.
      const { keep } = (tail = inputs.tail());
      inputs = tail.inputs;
      hidden = keep("tail.hidden", hidden);
      for (const source of new Set(config.layers.slice(index).map(({ kvSource }) => kvSource))) {
        const { key, value } = known.get(source)!;
        known.set(source, { key: keep(`tail.${source}.key`, key), value: keep(`tail.${source}.value`, value) });
      }
    }
    const isLast = index === config.layers.length - 1;
    const normalised = norm(context, config, `${name}.input_layernorm`, hidden);
    const parts = { index, name: `${name}.self_attn`, input: normalised, rotary: rotaryOf(layer) };
    let attended = attention(context, options, inputs, layer, parts, known);
    let residual = hidden;
    let ownEmbedding = ownEmbeddings?.[index] ?? null;
    if (tail !== null) ownEmbedding &&= tail.keep(`${name}.tail.own_embedding`, ownEmbedding);
    if (isLast) {
      // After the last attention no token depends on others, so only those whose logits are requested continue.
      const requested = (part: string, rows: Value): Value => gatherRows(graph, `last.${part}`, rows, inputs.logitRows);
      attended = requested("attended", attended);
      residual = requested("residual", residual);
      ownEmbedding &&= requested("own_embedding", ownEmbedding);
    }
    const output = { name: `${name}.self_attn.o_proj`, inFeatures: config.numHeads * layer.headDim };
    const outputLayer = { ...output, outFeatures: config.hiddenSize, hasBias: false };
    const projected = linear(context, attended, outputLayer, precision.linear);
    const attentionOutput = norm(context, config, `${name}.post_attention_layernorm`, projected);
    const between = addAndNorm(context, config, `${name}.pre_feedforward_layernorm`, attentionOutput, residual);
    const perceived = withExperts(context, config, name, {
      output: decoderPerceptron(context, { ...config, ...layer }, `${name}.mlp`, between.normalised),
      residual: between.sum,
    });
    hidden = addLayerEmbedding(context, config, name, {
      output: norm(context, config, `${name}.post_feedforward_layernorm`, perceived),
      residual: between.sum,
      ownEmbedding,
    });
    hidden = multiply(graph, `${name}.scaled`, hidden, parameter(context, `${name}.layer_scalar`, [1]));
  }
  const normalised = norm(context, config, `${prefix}norm`, hidden);
  const names = { isTied: config.tieWordEmbeddings, tableName: `${prefix}embed_tokens`, headName };
  outputLogits(context, normalised, headTensor(context.weights, names), { ...config, softcap: config.logitSoftcap });
}

function createRotaries(
  context: GraphContext,
  { config, maxModelLen }: Gemma4DecoderOptions,
): (layer: Gemma4Layer) => Rotary {
  const known = new Map<string, Rotary>();
  return ({ slidingWindow, headDim }) => {
    const kind = slidingWindow === null ? "global" : "local";
    const made = known.get(kind);
    if (made !== undefined) return made;
    const rope = kind === "global" ? config.globalRope : config.localRope;
    const rotary = createRotary(context, {
      name: `rope.${kind}`,
      rope,
      rotaryDim: headDim,
      maxModelLen,
      // Queries and keys have norms, and their products no scale.
      factor: 1,
    });
    known.set(kind, rotary);
    return rotary;
  };
}

function norm(context: GraphContext, config: Gemma4TextConfig, name: string, input: Value): Value {
  return rmsNorm(context, name, input, { size: config.hiddenSize, epsilon: config.rmsNormEpsilon });
}

function addAndNorm(
  context: GraphContext,
  { hiddenSize, rmsNormEpsilon: epsilon }: Gemma4TextConfig,
  name: string,
  input: Value,
  skip: Value,
): { readonly normalised: Value; readonly sum: Value } {
  const weight = parameter(context, `${name}.weight`, [hiddenSize]);
  return addAndNormalise(context, name, { input, skip, weight, epsilon });
}

/** [N, numHeads * headDim], before the output projection. */
function attention(
  context: GraphContext,
  { config, acceptsImages }: Gemma4DecoderOptions,
  inputs: DecoderInputs,
  layer: Gemma4Layer,
  parts: { readonly index: number; readonly name: string; readonly input: Value; readonly rotary: Rotary },
  known: Map<number, KeyValue>,
): Value {
  const { numHeads } = config;
  const { headDim, numKvHeads, kvSource, slidingWindow } = layer;
  const { index, name, input, rotary } = parts;
  const isReader = kvSource !== index;
  const { query, own } = projections(context, config, layer, name, input, isReader);
  if (own !== null) known.set(index, own);
  const keyValue = known.get(kvSource);
  invariant(keyValue !== undefined, "a layer reads the keys and values of an earlier one");
  return inputs.attend({
    name,
    // The layers with keys and values are the first ones.
    layer: kvSource,
    ...(isReader && { reader: index - numOwners(config) }),
    projected: { kind: "separate", values: [query, keyValue.key, keyValue.value] },
    rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: slidingWindow,
    scale: 1,
    seenImages: acceptsImages && config.seesWholeImages && slidingWindow !== null ? "own" : "before",
  });
}

/** Layers with keys and values of their own, which come first. */
export function numOwners({ layers }: Gemma4TextConfig): number {
  return layers.filter(({ kvSource }, index) => kvSource === index).length;
}

function projections(
  context: GraphContext,
  { hiddenSize, numHeads, rmsNormEpsilon: epsilon }: Gemma4TextConfig,
  { headDim, numKvHeads, sharesValueProjection }: Gemma4Layer,
  name: string,
  input: Value,
  isReader: boolean,
): { readonly query: Value; readonly own: KeyValue | null } {
  const { graph, precision } = context;
  const layerOf = (part: string, heads: number) => ({
    name: `${name}.${part}_proj`,
    inFeatures: hiddenSize,
    outFeatures: heads * headDim,
    hasBias: false,
  });
  const normalised = (part: string, rows: Value): Value => {
    const weight = parameter(context, `${name}.${part}_norm.weight`, [headDim]);
    return normaliseHeads(context, `${name}.${part}_norm`, rows, { weight, epsilon });
  };
  const queryLayer = layerOf("q", numHeads);
  if (isReader) return { query: normalised("q", linear(context, input, queryLayer, precision.linear)), own: null };
  const parts = sharesValueProjection ? ["k"] : ["k", "v"];
  const layers = [queryLayer, ...parts.map((part) => layerOf(part, numKvHeads))];
  const projected = jointLinear(context, `${name}.qkv`, input, layers, precision.linear);
  const widths = layers.map(({ outFeatures }) => outFeatures);
  const [query, key, value = key] = separate(graph, `${name}.qkv`, projected, widths);
  invariant(query !== undefined && key !== undefined && value !== undefined, "queries and keys are projected");
  const ones = Array.from({ length: headDim }, () => 1);
  const plain = graph.constant(`norm.ones.${headDim}`, precision.activations, [headDim], ones);
  return {
    query: normalised("q", query),
    own: {
      key: normalised("k", key),
      value: normaliseHeads(context, `${name}.v_norm`, value, { weight: plain, epsilon }),
    },
  };
}
