/** The layers of a vision transformer: pre-norm, with attention between all tokens of a picture. */
import { multiHeadAttention, rotaryEmbedding, type RotaryTables } from "../../graph/contrib-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, layerNormalization, multiply, split } from "../../graph/standard-ops.ts";
import type { Dimension, Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { VisionConfig } from "./config.ts";

/** How a checkpoint names the parts of a layer, and which it has. */
export interface LayerForm {
  readonly firstNorm: string;
  readonly attention: string;
  /** The projection after attention, below `attention`. */
  readonly output: string;
  readonly secondNorm: string;
  readonly hasQkvBias: boolean;
  /** Names of query, key and value, below `attention`. Default: `q_proj`, `k_proj` and `v_proj`. */
  readonly projections?: readonly [query: string, key: string, value: string];
  /** Name of one matrix for query, key and value, below `attention`. Default: each has its own. */
  readonly fusedProjection?: string;
  /** Norms of whole rows of queries and keys, below `attention`. */
  readonly queryAndKeyNorms?: { readonly query: string; readonly key: string; readonly epsilon: number };
  /** Learned factors [hiddenSize] of the results of attention and of the perceptron. */
  readonly scales?: { readonly attention: string; readonly perceptron: string };
  /** Default: layer norms, which have a bias. */
  readonly norms?: "layer" | "rms";
  /** Default: `mlp`. */
  readonly perceptronPrefix?: string;
  /** The perceptron's layers, below its prefix. Default: `fc1` and `fc2`. */
  readonly perceptron?: readonly [up: string, down: string];
}

export const clipLayers: LayerForm = {
  firstNorm: "layer_norm1",
  attention: "self_attn",
  output: "out_proj",
  secondNorm: "layer_norm2",
  hasQkvBias: true,
};

export interface EncoderInputs {
  /** [tokens of all pictures, hiddenSize]. */
  readonly embedded: Value;
  /** The shape that `embedded` represents. */
  readonly shape: PictureShape;
  /** The wanted hidden states: 0 is `embedded`, n the output of the n-th layer. Later layers are not computed. */
  readonly layers: readonly number[];
  /** Default: that of CLIP and SigLIP. */
  readonly form?: LayerForm;
  /** Angles by which queries and keys are rotated, and the row of each token among them: int64 [1, numTokens]. */
  readonly rotary?: (RotaryTables & { readonly positions: Value }) | undefined;
}

/**
 * @param prefix Prefix of the layers' tensors, e.g. "vision_tower.encoder.layers."
 * @returns For each of `layers`, [numImages, numTokens, hiddenSize].
 */
export function buildEncoderLayers(
  context: GraphContext,
  config: VisionConfig,
  prefix: string,
  { embedded, shape, layers, form = clipLayers, rotary }: EncoderInputs,
): Value[] {
  const { graph } = context;
  const attend: Attend = (name, { query, key, value }) => {
    const ofPictures = (part: string, rows: Value): Value => reshapeTo(graph, `${name}.${part}`, rows, shape);
    const rotated = (part: "q" | "k", rows: Value): Value => {
      const input = ofPictures(part, rows);
      return rotary === undefined ? input : rotaryEmbedding(graph, `${name}.${part}.rotated`, { input, ...rotary });
    };
    const parts = { query: rotated("q", query), key: rotated("k", key), value: ofPictures("v", value) };
    const attended = multiHeadAttention(graph, name, { ...parts, numHeads: config.numHeads });
    return flattenPictures(context, `${name}.flat`, attended);
  };
  let hidden = embedded;
  const wanted = new Map<number, Value>();
  const keep = (layer: number): void => {
    if (layers.includes(layer)) wanted.set(layer, reshapeTo(graph, `hidden_states.${layer}`, hidden, shape));
  };
  keep(0);
  for (let layer = 0; layer < Math.max(...layers); layer++) {
    hidden = encoderLayer(context, config, `${prefix}${layer}`, hidden, { attend, form });
    keep(layer + 1);
  }
  return layers.map((layer) => wanted.get(layer)!);
}

/** Any number of pictures with equally many tokens, or one picture with any number of them. */
export type PictureShape =
  | readonly [numImages: Dimension, numTokens: number, hiddenSize: number]
  | readonly [numImages: 1, numTokens: string, hiddenSize: number];

/** The same rows as [numImages * numTokens, hiddenSize], for linear layers. */
export function flattenPictures({ graph }: GraphContext, name: string, input: Value): Value {
  const [images, numTokens, hiddenSize] = input.shape as PictureShape;
  const rows = typeof numTokens === "number" ? `${images} * numTokens` : numTokens;
  return reshapeTo(graph, name, input, [rows, hiddenSize]);
}

export function layerNorm(context: GraphContext, config: VisionConfig, name: string, input: Value): Value {
  const weight = parameter(context, `${name}.weight`, [config.hiddenSize]);
  const bias = parameter(context, `${name}.bias`, [config.hiddenSize]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: config.layerNormEpsilon });
}

/**
 * Attention between rows, [rows, hiddenSize] like its result.
 *
 * @param name Prefix of the values' names.
 */
export type Attend = (
  name: string,
  projected: { readonly query: Value; readonly key: Value; readonly value: Value },
) => Value;

export interface LayerOptions {
  readonly attend: Attend;
  /** Default: that of CLIP and SigLIP. */
  readonly form?: LayerForm;
}

/** One layer: [rows, hiddenSize] to the same. */
export function encoderLayer(
  context: GraphContext,
  config: VisionConfig,
  name: string,
  hidden: Value,
  { attend, form = clipLayers }: LayerOptions,
): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize } = config;
  const middle = attentionBlock(context, config, name, hidden, { attend, form });
  const perceptronInput = layerInput(context, config, `${name}.${form.secondNorm}`, middle, form);
  const [upName, downName] = form.perceptron ?? ["fc1", "fc2"];
  const perceptron = `${name}.${form.perceptronPrefix ?? "mlp"}`;
  const up = layerOf(`${perceptron}.${upName}`, hiddenSize, intermediateSize);
  const down = layerOf(`${perceptron}.${downName}`, intermediateSize, hiddenSize);
  const raised = linear(context, perceptronInput, up, precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, raised, config.activation);
  const added = scaled(context, name, form.scales?.perceptron, linear(context, activated, down, precision.vision));
  return add(graph, `${name}.after_mlp`, middle, added);
}

/** The first half of a layer: attention, with its norm before and the projection behind it, added to its input. */
export function attentionBlock(
  context: GraphContext,
  config: VisionConfig,
  name: string,
  hidden: Value,
  { attend, form = clipLayers }: LayerOptions,
): Value {
  const { graph, precision } = context;
  const { hiddenSize } = config;
  const attention = `${name}.${form.attention}`;
  const input = layerInput(context, config, `${name}.${form.firstNorm}`, hidden, form);
  const projected = (part: string, outFeatures: number): Value =>
    linear(context, input, layerOf(`${attention}.${part}`, hiddenSize, outFeatures, form.hasQkvBias), precision.vision);
  const { fusedProjection: fused } = form;
  const sizes = [hiddenSize, hiddenSize, hiddenSize] as const;
  const [queryName, keyName, valueName] = form.projections ?? ["q_proj", "k_proj", "v_proj"];
  const [query, key, value] =
    fused === undefined
      ? ([projected(queryName, hiddenSize), projected(keyName, hiddenSize), projected(valueName, hiddenSize)] as const)
      : split(graph, `${attention}.parts`, projected(fused, 3 * hiddenSize), { axis: 1, sizes });
  const normalised = (rows: Value, normName: string | undefined): Value => {
    if (normName === undefined) return rows;
    const epsilon = form.queryAndKeyNorms?.epsilon ?? 0;
    return rmsNorm(context, `${attention}.${normName}`, rows, { size: hiddenSize, epsilon });
  };
  const attended = attend(attention, {
    query: normalised(query, form.queryAndKeyNorms?.query),
    key: normalised(key, form.queryAndKeyNorms?.key),
    value,
  });
  const output = layerOf(`${attention}.${form.output}`, hiddenSize, hiddenSize);
  const added = scaled(context, name, form.scales?.attention, linear(context, attended, output, precision.vision));
  return add(graph, `${name}.after_attention`, hidden, added);
}

function layerOf(name: string, inFeatures: number, outFeatures: number, hasBias = true): LinearLayer {
  return { name, inFeatures, outFeatures, hasBias };
}

function layerInput(
  context: GraphContext,
  config: VisionConfig,
  name: string,
  hidden: Value,
  { norms }: LayerForm,
): Value {
  if (norms !== "rms") return layerNorm(context, config, name, hidden);
  return rmsNorm(context, name, hidden, { size: config.hiddenSize, epsilon: config.layerNormEpsilon });
}

/** @param factors Name of the factors below `name`; left out if there are none. */
function scaled(context: GraphContext, name: string, factors: string | undefined, value: Value): Value {
  if (factors === undefined) return value;
  const weight = parameter(context, `${name}.${factors}`, [Number(value.shape[1])]);
  return multiply(context.graph, `${name}.${factors}.scaled`, value, weight);
}
