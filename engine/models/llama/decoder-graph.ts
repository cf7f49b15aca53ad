/** The decoder graph of the Llama family. Its inputs and outputs are those of `DecoderGraph`. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, gatherRows, multiply, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { createDecoderInputs } from "../decoder-graph/create-decoder-inputs.ts";
import type { CachedAttention, DecoderInputs, Rotary } from "../decoder-graph/decoder-inputs.ts";
import { decoderPerceptron } from "../decoder-graph/decoder-perceptron.ts";
import { normaliseQueryAndKey, type HeadNormNames } from "../decoder-graph/head-norm.ts";
import { mixture } from "../decoder-graph/mixture.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { routerLogits } from "../decoder-graph/router.ts";
import { tokens } from "../decoder-graph/sizes.ts";
import { embedTokens, headTensor, outputLogits, type AddedTokens } from "../decoder-graph/vocabulary.ts";
import { usesHead } from "../decoder-output.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate, type JointProjection, type LinearLayer } from "../linear.ts";
import { residualRmsNorm, rmsNorm } from "../rms-norm.ts";
import type { DecoderConfig } from "./config.ts";
import { jointlyGatedPerceptron } from "./joint-perceptron.ts";
import { llamaNames, type LayerNames } from "./layer-names.ts";
import { scaledBy } from "./multipliers.ts";
import { queryFactors, scaleQueries } from "./query-scaling.ts";

export interface DecoderOptions {
  readonly config: DecoderConfig;
  /** Prefix of the decoder's own tensors, e.g. "model." */
  readonly prefix: string;
  readonly headName: string;
  /** Of the tensors below the prefix. Default: Llama's. */
  readonly names?: LayerNames;
  readonly acceptsImages: boolean;
  /** Which images the tokens of an image see; see `CachedAttention`. Default: only what lies before them. */
  readonly seenImages?: CachedAttention["seenImages"];
  /** Tokens behind the vocabulary. Default: none. */
  readonly addedTokens?: AddedTokens;
  /** Length of the rotary tables: the maximum number of tokens per sequence. */
  readonly maxModelLen: number;
  /**
   * How many of a head's frequencies rotate with each of a token's three positions, which are then an input of the
   * graph. If left out, a token has one position.
   */
  readonly rotarySections?: readonly [number, number, number];
  /** Whether the three positions take turns among the frequencies. Default: each has a run of frequencies. */
  readonly interleavesSections?: boolean;
  /**
   * Number of first layers, fewer than all, to whose outputs images add features of their own (DeepStack). Default 0.
   */
  readonly numImageLevels?: number;
  /** Ascending layers behind the first, to whose inputs images add features of their own, instead of `numImageLevels`. */
  readonly imageLevelLayers?: readonly number[];
  /**
   * Whether layers are those of GLM's decoders without experts: what attention and perceptron add has a norm of its own,
   * gate and up projection are one matrix, and neighbouring dimensions of a head are rotated together. Default: Llama's.
   */
  readonly isGlm?: boolean;
  /** Rotates queries and keys before their norms. Default: attention rotates them, after the norms if there are any. */
  readonly firstRotation?: FirstRotation;
}

/** A rotation of queries and keys before they are normalised. */
export interface FirstRotation {
  readonly headNorms: HeadNormNames;
  /** Builds the values that all layers share. */
  create(this: void, context: GraphContext, inputs: DecoderInputs): RotateHeads;
}

/** Rotates [N, numHeads * headDim]. */
export type RotateHeads = (name: string, rows: Value, numHeads: number) => Value;

/**
 * Pre-norm transformer. The residual stream is passed on as its last two summands, `hidden` (the newest block's output)
 * and `residual` (everything before), because the next norm adds them in the same pass.
 */
export function buildDecoderGraph(context: GraphContext, options: DecoderOptions): void {
  const { graph } = context;
  const { config, prefix, headName, acceptsImages, names = llamaNames, addedTokens } = options;
  const inputs = createDecoderInputs(context);
  const { queryScaling = null, multipliers } = config;
  const { firstRotation } = options;
  const mixing: Mixing = {
    inputs,
    rotary: firstRotation === undefined ? rotaryOf(context, options) : null,
    rotate: firstRotation?.create(context, inputs) ?? null,
    factors:
      queryScaling === null
        ? scaleOfQueries(context, options)
        : queryFactors(context, inputs, queryScaling, options.maxModelLen),
  };
  const tableName = `${prefix}${names.table}`;

  const { imageLevelLayers = Array.from({ length: options.numImageLevels ?? 0 }, (_, level) => level + 1) } = options;
  const numImageLevels = imageLevelLayers.length;
  const size = {
    tableName,
    size: config,
    acceptsImages,
    numLevels: numImageLevels,
    ...(addedTokens && { addedTokens }),
  };
  const { embedded, levels } = embedTokens(context, inputs, size);
  let hidden = scaledBy(graph, "embedded.scaled", embedded, multipliers?.embedding);
  let residual: Value | null = null;
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `${prefix}${names.layers}.${layer}`;
    let normalised: Value;
    [normalised, residual] = normalise(context, options, `${name}.${names.attentionNorm}`, hidden, residual);
    const layerInput = { name: `${name}.self_attn`, layer, input: normalised };
    let attended = attention(context, options, layerInput, mixing);
    if (layer === config.numLayers - 1) {
      // After the last attention no token depends on others, so only those whose logits are requested continue.
      attended = gatherRows(graph, "last.attended", attended, inputs.logitRows);
      residual = gatherRows(graph, "last.residual", residual, inputs.logitRows);
    }
    hidden = linear(
      context,
      attended,
      outputProjection(config, `${name}.self_attn.${names.attentionOutput}`),
      context.precision.linear,
    );
    hidden = normaliseOutput(context, options, `${name}.post_self_attn_layernorm`, hidden);
    [normalised, residual] = normalise(context, options, `${name}.${names.perceptronNorm}`, hidden, residual);
    hidden = perceptron(context, options, { name: `${name}.mlp`, layer, input: normalised });
    hidden = normaliseOutput(context, options, `${name}.post_mlp_layernorm`, hidden);
    const level = levels[imageLevelLayers.indexOf(layer + 1)];
    if (level !== undefined) hidden = add(graph, `${name}.with_images`, hidden, level);
  }
  const [normalised] = normalise(context, options, `${prefix}${names.lastNorm}`, hidden, residual);
  const scale = usesHead(context.output) ? multipliers?.logits : undefined;
  const headInput = scaledBy(graph, "head.input", normalised, scale);
  const heads = { isTied: config.tieWordEmbeddings, tableName: tableName.replace(/\.weight$/u, ""), headName };
  outputLogits(context, headInput, headTensor(context.weights, heads), config);
}

function rotaryOf(
  context: GraphContext,
  { config, maxModelLen, rotarySections, interleavesSections = false, isGlm = false }: DecoderOptions,
): Rotary {
  const { rope, headDim, rotaryDim = headDim } = config;
  return createRotary(context, {
    rope,
    rotaryDim,
    tableDim: isGlm ? headDim : rotaryDim,
    maxModelLen,
    factor: scalesByTables(config, isGlm) ? scoreFactor(config) : 1,
    ...(rotarySections === undefined ? {} : { sections: rotarySections, interleavesSections }),
  });
}

/** The RMS norm of the residual stream, and the stream itself. */
function normalise(
  context: GraphContext,
  { config }: DecoderOptions,
  name: string,
  hidden: Value,
  residual: Value | null,
): [normalised: Value, residual: Value] {
  const { hiddenSize: size, rmsNormEpsilon: epsilon } = config;
  return residualRmsNorm(context, name, { hidden, residual }, { size, epsilon });
}

/** The norm or the factor of what a block adds to the residual stream, if it has one. */
function normaliseOutput(context: GraphContext, { config, isGlm }: DecoderOptions, name: string, output: Value): Value {
  if (isGlm !== true) return scaledBy(context.graph, `${name}.scaled`, output, config.multipliers?.residual);
  return rmsNorm(context, name, output, { size: config.hiddenSize, epsilon: config.rmsNormEpsilon });
}

/** Inputs of attention that are the same in all layers. */
interface Mixing {
  readonly inputs: DecoderInputs;
  /** Null if queries and keys are rotated before. */
  readonly rotary: Rotary | null;
  readonly rotate: RotateHeads | null;
  /** [N or 1, 1]: the factor of each token's query; null if it is 1. */
  readonly factors: Value | null;
}

interface LayerInput {
  readonly name: string;
  readonly layer: number;
  readonly input: Value;
}

/** [N, numHeads * headDim], before the output projection. */
function attention(
  context: GraphContext,
  { config, isGlm = false, firstRotation, names = llamaNames, seenImages = "before" }: DecoderOptions,
  { name, layer, input }: LayerInput,
  { inputs, rotary, rotate, factors }: Mixing,
): Value {
  const { graph } = context;
  const { numHeads, numKvHeads, headDim } = config;
  const projected = projections(context, config, { name, joint: names.jointQkv }, input);
  const rotated = rotate === null ? projected : rotatedFirst(context, config, name, projected, rotate);
  const weightOf = (norm: string): Value => {
    const weight = parameter(context, `${norm}.weight`, [headDim]);
    if (rotate === null) return weight;
    // In place of the tables of a later rotation.
    const factor = graph.constant("attention.factor", weight.elementType, [1], [scoreFactor(config)]);
    return multiply(graph, `${norm}.weight.scaled`, weight, factor);
  };
  const headSizes = firstRotation === undefined ? config : { ...config, headNorms: firstRotation.headNorms };
  const normalised = config.normalisesQueryAndKey
    ? normaliseQueryAndKey(context, headSizes, name, rotated, weightOf)
    : rotated;
  const paired = isGlm ? withPairsApart(context, config, name, normalised) : normalised;
  const widths = [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim] as const;
  return inputs.attend({
    name,
    layer,
    projected: factors === null ? paired : scaleQueries(context, name, paired, widths, factors),
    rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: config.slidingWindows[layer] ?? null,
    // The rotary tables contain the scale, or the norms after a rotation, or the factors of queries.
    scale: 1,
    seenImages,
  });
}

/**
 * Query and key are each multiplied by half of the scores' scale (its root). The CPU's product of one row with many, which
 * decoding uses, has a fast form only without a scale afterwards.
 */
function scoreFactor({ headDim, multipliers }: DecoderConfig): number {
  return multipliers == null ? headDim ** -0.25 : Math.sqrt(multipliers.attention);
}

/** Whether the rotary tables contain the scores' scale, which takes all dimensions of a head. */
function scalesByTables({ headDim, rotaryDim = headDim }: DecoderConfig, isGlm: boolean): boolean {
  return isGlm || rotaryDim === headDim;
}

/** [1, 1]: the scores' scale, as a factor of queries; null if the tables or norms contain it. */
function scaleOfQueries({ graph, precision }: GraphContext, options: DecoderOptions): Value | null {
  const { config, isGlm = false, firstRotation } = options;
  if (firstRotation !== undefined || scalesByTables(config, isGlm)) return null;
  const scale = config.multipliers?.attention ?? config.headDim ** -0.5;
  return graph.constant("attention.scale", precision.activations, [1, 1], [scale]);
}

function rotatedFirst(
  { graph }: GraphContext,
  { numHeads, numKvHeads, headDim }: DecoderConfig,
  name: string,
  projected: JointProjection,
  rotate: RotateHeads,
): JointProjection {
  const widths = [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim] as const;
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, widths);
  return {
    kind: "separate",
    values: [rotate(`${name}.query`, query, numHeads), rotate(`${name}.key`, key, numKvHeads), value],
  };
}

/** Query, key and value, not rotated. */
function projections(
  context: GraphContext,
  config: DecoderConfig,
  { name, joint }: { readonly name: string; readonly joint: string },
  input: Value,
): JointProjection {
  const { numHeads, numKvHeads, headDim, hiddenSize: inFeatures, hasQkvBias: hasBias } = config;
  const { linear: format } = context.precision;
  const projection = (part: string, heads: number): LinearLayer => ({
    name: `${name}.${part}`,
    inFeatures,
    outFeatures: heads * headDim,
    hasBias,
  });
  if (config.fusesProjections === true) {
    return { kind: "packed", value: linear(context, input, projection(joint, numHeads + 2 * numKvHeads), format) };
  }
  const layers = [projection("q_proj", numHeads), projection("k_proj", numKvHeads), projection("v_proj", numKvHeads)];
  return jointLinear(context, `${name}.qkv`, input, layers, format);
}

/**
 * The projections with the first dimensions of all pairs of a head before the second ones, in queries and keys. Rotating
 * them in halves then rotates neighbours, and the products of queries and keys stay the same.
 */
function withPairsApart(
  context: GraphContext,
  { numHeads, numKvHeads, headDim }: DecoderConfig,
  name: string,
  projected: JointProjection,
): JointProjection {
  const { graph } = context;
  const widths = [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim] as const;
  const [query, key, value] = separate(graph, `${name}.qkv`, projected, widths);
  const apart = (part: string, rows: Value, features: number): Value => {
    const pairs = reshapeTo(graph, `${name}.${part}_pairs`, rows, [`N * ${part}Heads`, headDim / 2, 2]);
    const halves = transpose(graph, `${name}.${part}_halves`, pairs, [0, 2, 1]);
    return reshapeTo(graph, `${name}.${part}_apart`, halves, [tokens, features]);
  };
  return { kind: "separate", values: [apart("q", query, widths[0]), apart("k", key, widths[1]), value] };
}

function outputProjection(config: DecoderConfig, name: string): LinearLayer {
  return {
    name,
    inFeatures: config.numHeads * config.headDim,
    outFeatures: config.hiddenSize,
    hasBias: config.hasOutputBias,
  };
}

/** The second block of a layer: [N, hiddenSize]. */
function perceptron(
  context: GraphContext,
  { config, isGlm = false, names = llamaNames }: DecoderOptions,
  { name, layer, input }: LayerInput,
): Value {
  const { experts } = config;
  if (experts?.layers[layer] === true) {
    const router = `${name}.gate`;
    const { numExperts, groups } = experts;
    // A correction is made for logits in float32, in which this kind of router computes.
    const type = groups === undefined ? context.precision.activations : "float32";
    const logits = routerLogits(context, router, input, numExperts, type);
    const bias = groups && parameter(context, `${router}.e_score_correction_bias`, [numExperts], "float32");
    const options = { ...experts, ...(groups && bias && { correction: { ...groups, bias } }) };
    const mixed = mixture(context, options, name, { input, logits, router, activation: "silu" });
    const { sharedIntermediateSize: intermediateSize = 0 } = experts;
    if (intermediateSize === 0) return mixed;
    const shape = { hiddenSize: config.hiddenSize, intermediateSize, activation: "silu" } as const;
    const shared = decoderPerceptron(context, shape, `${name}.shared_experts`, input);
    return add(context.graph, `${name}.with_shared`, mixed, shared);
  }
  const isFused = isGlm || config.fusesProjections === true;
  return isFused
    ? jointlyGatedPerceptron(context, config, names, name, input)
    : decoderPerceptron(context, { ...config, activation: "silu" }, name, input);
}
