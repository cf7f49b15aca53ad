/** BLIP-2's vision model: a ViT with a class token, one matrix for query, key and value, and a norm at the end. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { add, concat, expand, reshape, shapeOf, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import { numPatches, type VisionConfig } from "../vision-transformer/config.ts";
import { flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";
import { embedPatches } from "../vision-transformer/patch-embedding.ts";

/**
 * @param pixels float [numImages, channels, imageSize, imageSize].
 * @param prefix Prefix of the model's tensors, e.g. "vision_model."
 * @returns [numImages, 1 + numPatches, hiddenSize], after the last norm.
 */
export function buildBlip2Vision(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value): Value {
  const { graph } = context;
  const tokens = embedPicture(context, config, prefix, pixels);
  let hidden = flattenPictures(context, "vision.embedded", tokens);
  const shape = [pixels.shape[0]!, numPatches(config) + 1, config.hiddenSize] as const;
  const target = graph.constant("vision.batch_shape", "int64", [3], [-1, shape[1], shape[2]]);
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = encoderLayer(context, config, `${prefix}encoder.layers.${layer}`, hidden, (name, value) =>
      reshape(graph, name, value, target, shape),
    );
  }
  const normalised = layerNorm(context, config, `${prefix}post_layernorm`, hidden);
  return reshape(graph, "vision.states", normalised, target, shape);
}

function embedPicture(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value): Value {
  const { graph } = context;
  const { hiddenSize } = config;
  const images = pixels.shape[0]!;
  const patches = embedPatches(context, config, { name: `${prefix}embeddings.patch_embedding`, hasBias: true }, pixels);
  const classEmbedding = parameter(context, `${prefix}embeddings.class_embedding`, [1, 1, hiddenSize]);
  const oneByOne = graph.constant("vision.one_by_one", "int64", [2], [1, 1]);
  const classTarget = concat(graph, "class.shape", [shapeOf(graph, "num_images", pixels, 1), oneByOne], 0);
  const classTokens = expand(graph, "class.tokens", classEmbedding, classTarget, [images, 1, hiddenSize]);
  const withClass = concat(graph, "patches.with_class", [classTokens, patches], 1);
  const positions = parameter(context, `${prefix}embeddings.position_embedding`, [
    1,
    numPatches(config) + 1,
    hiddenSize,
  ]);
  return add(graph, "vision.tokens", withClass, positions);
}

function encoderLayer(
  context: GraphContext,
  config: VisionConfig,
  name: string,
  hidden: Value,
  toPictures: (name: string, value: Value) => Value,
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
  const joint = linear(context, attentionInput, layer("self_attn.qkv", hiddenSize, 3 * hiddenSize), precision.vision);
  const sizes = [hiddenSize, hiddenSize, hiddenSize];
  const [query, key, value] = split(graph, `${name}.self_attn.split`, joint, { axis: 1, sizes }).map((part, index) =>
    toPictures(`${name}.self_attn.${"qkv".charAt(index)}`, part),
  ) as [Value, Value, Value];
  const attended = multiHeadAttention(graph, `${name}.self_attn`, { query, key, value, numHeads });
  const flat = flattenPictures(context, `${name}.self_attn.flat`, attended);
  const projected = linear(context, flat, layer("self_attn.projection", hiddenSize, hiddenSize), precision.vision);
  const middle = add(graph, `${name}.after_attention`, hidden, projected);

  const perceptronInput = layerNorm(context, config, `${name}.layer_norm2`, middle);
  const up = linear(context, perceptronInput, layer("mlp.fc1", hiddenSize, intermediateSize), precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, up, config.activation);
  const down = linear(context, activated, layer("mlp.fc2", intermediateSize, hiddenSize), precision.vision);
  return add(graph, `${name}.after_mlp`, middle, down);
}
