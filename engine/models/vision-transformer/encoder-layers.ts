/** The layers of a vision transformer: pre-norm, with attention between all tokens of a picture. */
import { multiHeadAttention, rotaryEmbedding, type RotaryTables } from "../../graph/contrib-ops.ts";
import { add, layerNormalization, multiply, reshape } from "../../graph/standard-ops.ts";
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
  /** Norms of whole rows of queries and keys, below `attention`. */
  readonly queryAndKeyNorms?: { readonly query: string; readonly key: string; readonly epsilon: number };
  /** Learned factors [hiddenSize] of the results of attention and of the perceptron. */
  readonly scales?: { readonly attention: string; readonly perceptron: string };
  /** Default: layer norms, which have a bias. */
  readonly norms?: "layer" | "rms";
}

const clipLayers: LayerForm = {
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
  const [, numTokens, hiddenSize] = shape;
  const sizes = typeof numTokens === "number" ? [-1, numTokens, hiddenSize] : [1, -1, hiddenSize];
  const batchShape = graph.constant("vision.batch_shape", "int64", [3], sizes);
  let hidden = embedded;
  const wanted = new Map<number, Value>();
  const keep = (layer: number): void => {
    if (layers.includes(layer)) {
      wanted.set(layer, reshape(graph, `hidden_states.${layer}`, hidden, batchShape, shape));
    }
  };
  keep(0);
  for (let layer = 0; layer < Math.max(...layers); layer++) {
    hidden = encoderLayer(context, config, `${prefix}${layer}`, hidden, { batchShape, shape, form, rotary });
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
  const flatShape = graph.constant("vision.flat_shape", "int64", [2], [-1, hiddenSize]);
  const rows = typeof numTokens === "number" ? `${images} * numTokens` : numTokens;
  return reshape(graph, name, input, flatShape, [rows, hiddenSize]);
}

export function layerNorm(context: GraphContext, config: VisionConfig, name: string, input: Value): Value {
  const weight = parameter(context, `${name}.weight`, [config.hiddenSize]);
  const bias = parameter(context, `${name}.bias`, [config.hiddenSize]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: config.layerNormEpsilon });
}

function encoderLayer(
  context: GraphContext,
  config: VisionConfig,
  name: string,
  hidden: Value,
  {
    batchShape,
    shape,
    form,
    rotary,
  }: Pick<EncoderInputs, "shape" | "rotary"> & {
    readonly batchShape: Value;
    readonly form: LayerForm;
  },
): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize, numHeads } = config;
  const layer = (part: string, inFeatures: number, outFeatures: number, hasBias = true): LinearLayer => ({
    name: `${name}.${part}`,
    inFeatures,
    outFeatures,
    hasBias,
  });
  const norm = (part: string, input: Value): Value =>
    form.norms === "rms"
      ? rmsNorm(context, `${name}.${part}`, input, { size: hiddenSize, epsilon: config.layerNormEpsilon })
      : layerNorm(context, config, `${name}.${part}`, input);
  const scaled = (part: string | undefined, value: Value): Value =>
    part === undefined
      ? value
      : multiply(graph, `${name}.${part}.scaled`, value, parameter(context, `${name}.${part}`, [hiddenSize]));

  const attention = `${name}.${form.attention}`;
  const attentionInput = norm(form.firstNorm, hidden);
  const projected = (part: "q" | "k" | "v", normName?: string): Value => {
    const projection = layer(`${form.attention}.${part}_proj`, hiddenSize, hiddenSize, form.hasQkvBias);
    const flat = linear(context, attentionInput, projection, precision.vision);
    const epsilon = form.queryAndKeyNorms?.epsilon ?? 0;
    const normalised =
      normName === undefined ? flat : rmsNorm(context, `${attention}.${normName}`, flat, { size: hiddenSize, epsilon });
    return reshape(graph, `${attention}.${part}`, normalised, batchShape, shape);
  };
  const rotated = (part: "q" | "k", input: Value): Value =>
    rotary === undefined ? input : rotaryEmbedding(graph, `${attention}.${part}.rotated`, { input, ...rotary });
  const query = rotated("q", projected("q", form.queryAndKeyNorms?.query));
  const key = rotated("k", projected("k", form.queryAndKeyNorms?.key));
  const attended = multiHeadAttention(graph, attention, { query, key, value: projected("v"), numHeads });
  const flat = flattenPictures(context, `${attention}.flat`, attended);
  const output = layer(`${form.attention}.${form.output}`, hiddenSize, hiddenSize);
  const added = scaled(form.scales?.attention, linear(context, flat, output, precision.vision));
  const middle = add(graph, `${name}.after_attention`, hidden, added);

  const perceptronInput = norm(form.secondNorm, middle);
  const up = linear(context, perceptronInput, layer("mlp.fc1", hiddenSize, intermediateSize), precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, up, config.activation);
  const down = linear(context, activated, layer("mlp.fc2", intermediateSize, hiddenSize), precision.vision);
  return add(graph, `${name}.after_mlp`, middle, scaled(form.scales?.perceptron, down));
}
