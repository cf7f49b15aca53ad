/** BLIP-2's vision model: a ViT with a class token, one matrix for query, key and value, and a norm at the end. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { add, reshape, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import { embedWithClassToken } from "../vision-transformer/class-token.ts";
import { numPatches, type VisionConfig } from "../vision-transformer/config.ts";
import { flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";

/**
 * @param pixels float [numImages, channels, imageSize, imageSize].
 * @param prefix Prefix of the model's tensors, e.g. "vision_model."
 * @returns [numImages, 1 + numPatches, hiddenSize], after the last norm.
 */
export function buildBlip2Vision(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value): Value {
  const { graph } = context;
  const names = {
    convolution: { name: `${prefix}embeddings.patch_embedding`, hasBias: true },
    classToken: `${prefix}embeddings.class_embedding`,
    positions: `${prefix}embeddings.position_embedding`,
  };
  const tokens = embedWithClassToken(context, config, names, pixels);
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
