/** The layers of a vision transformer: pre-norm, with attention between all tokens of a picture. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { add, layerNormalization, reshape } from "../../graph/standard-ops.ts";
import type { Dimension, Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import type { VisionConfig } from "./config.ts";

/**
 * @param prefix Prefix of the layers' tensors, e.g. "vision_tower.encoder.layers."
 * @param embedded [tokens of all pictures, hiddenSize].
 * @param shape The shape that `embedded` represents: [numImages, numTokens, hiddenSize].
 * @param layers The wanted hidden states: 0 is `embedded`, n the output of the n-th layer. Later layers are not
 * computed.
 * @returns For each of `layers`, [numImages, numTokens, hiddenSize].
 */
export function buildEncoderLayers(
  context: GraphContext,
  config: VisionConfig,
  prefix: string,
  {
    embedded,
    shape,
    layers,
  }: { readonly embedded: Value; readonly shape: PictureShape; readonly layers: readonly number[] },
): Value[] {
  const { graph } = context;
  const batchShape = graph.constant("vision.batch_shape", "int64", [3], [-1, shape[1], shape[2]]);
  let hidden = embedded;
  const wanted = new Map<number, Value>();
  const keep = (layer: number): void => {
    if (layers.includes(layer)) {
      wanted.set(layer, reshape(graph, `hidden_states.${layer}`, hidden, batchShape, shape));
    }
  };
  keep(0);
  for (let layer = 0; layer < Math.max(...layers); layer++) {
    hidden = encoderLayer(context, config, `${prefix}${layer}`, hidden, { batchShape, shape });
    keep(layer + 1);
  }
  return layers.map((layer) => wanted.get(layer)!);
}

export type PictureShape = readonly [numImages: Dimension, numTokens: number, hiddenSize: number];

/** The same rows as [numImages * numTokens, hiddenSize], for linear layers. */
export function flattenPictures({ graph }: GraphContext, name: string, input: Value): Value {
  const [images, , hiddenSize] = input.shape as PictureShape;
  const flatShape = graph.constant("vision.flat_shape", "int64", [2], [-1, hiddenSize]);
  return reshape(graph, name, input, flatShape, [`${images} * numTokens`, hiddenSize]);
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
  { batchShape, shape }: { readonly batchShape: Value; readonly shape: PictureShape },
): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize, numHeads } = config;
  const layer = (part: string, inFeatures: number, outFeatures: number): LinearLayer => ({
    name: `${name}.${part}`,
    inFeatures,
    outFeatures,
    hasBias: true,
  });

  const attentionInput = layerNorm(context, config, `${name}.layer_norm1`, hidden);
  const projected = (part: "q" | "k" | "v"): Value => {
    const projection = layer(`self_attn.${part}_proj`, hiddenSize, hiddenSize);
    const flat = linear(context, attentionInput, projection, precision.vision);
    return reshape(graph, `${name}.self_attn.${part}`, flat, batchShape, shape);
  };
  const [query, key, value] = [projected("q"), projected("k"), projected("v")];
  const attended = multiHeadAttention(graph, `${name}.self_attn`, { query, key, value, numHeads });
  const flat = flattenPictures(context, `${name}.self_attn.flat`, attended);
  const attention = linear(context, flat, layer("self_attn.out_proj", hiddenSize, hiddenSize), precision.vision);
  const middle = add(graph, `${name}.after_attention`, hidden, attention);

  const perceptronInput = layerNorm(context, config, `${name}.layer_norm2`, middle);
  const up = linear(context, perceptronInput, layer("mlp.fc1", hiddenSize, intermediateSize), precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, up, config.activation);
  const down = linear(context, activated, layer("mlp.fc2", intermediateSize, hiddenSize), precision.vision);
  return add(graph, `${name}.after_mlp`, middle, down);
}
