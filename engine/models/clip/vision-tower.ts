/** The CLIP vision tower: pictures to the hidden states of one of its layers. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import {
  add,
  cast,
  concat,
  expand,
  layerNormalization,
  reshape,
  shapeOf,
  transpose,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import { numPatches, type VisionConfig } from "./config.ts";

// Names of the sizes that are known at run time only.
export const images = "numImages";
const tokens = "numImages * numTokens";
const patches = "numImages * numPatches";

/**
 * @param prefix Prefix of the tower's tensors, e.g. "vision_tower.vision_model."
 * @param layers Which hidden states: 0 is before the first layer, n after the n-th. Later layers are not computed, and
 *   the norm after the last is no part of any.
 * @returns For each of `layers`, [numImages, 1 + numPatches, hiddenSize], the class token first.
 */
export function buildVisionTower(
  context: GraphContext,
  config: VisionConfig,
  prefix: string,
  layers: readonly number[],
): Value[] {
  const { graph, precision } = context;
  const numTokens = numPatches(config) + 1;
  const shape = [images, numTokens, config.hiddenSize];
  const pixels = graph.input("pixel_values", "float32", [
    images,
    config.numChannels,
    config.imageSize,
    config.imageSize,
  ]);
  const embedded = embedPatches(context, config, prefix, cast(graph, "pixels", pixels, precision.activations));
  const flatShape = graph.constant("vision.flat_shape", "int64", [2], [-1, config.hiddenSize]);
  const batchShape = graph.constant("vision.batch_shape", "int64", [3], [-1, numTokens, config.hiddenSize]);

  const flat = reshape(graph, "embedded.flat", embedded, flatShape, [tokens, config.hiddenSize]);
  let hidden = norm(context, config, `${prefix}pre_layrnorm`, flat);
  const wanted = new Map<number, Value>();
  const keep = (layer: number): void => {
    if (layers.includes(layer)) {
      wanted.set(layer, reshape(graph, `hidden_states.${layer}`, hidden, batchShape, shape));
    }
  };
  keep(0);
  for (let layer = 0; layer < Math.max(...layers); layer++) {
    hidden = encoderLayer(context, config, `${prefix}encoder.layers.${layer}`, hidden, batchShape);
    keep(layer + 1);
  }
  return layers.map((layer) => wanted.get(layer)!);
}

/**
 * The convolution over patches as one matrix product: its stride is its kernel's size, so no pixel is in two patches.
 * [numImages, 1 + numPatches, hiddenSize].
 */
function embedPatches(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value): Value {
  const { graph, weights, precision } = context;
  const { numChannels, patchSize, hiddenSize } = config;
  const side = config.imageSize / patchSize;
  const patchFeatures = numChannels * patchSize * patchSize;
  const count = numPatches(config);

  const gridShape = [numChannels, side, patchSize, side, patchSize];
  const gridTarget = graph.constant("patches.grid_shape", "int64", [6], [-1, ...gridShape]);
  const grid = reshape(graph, "patches.grid", pixels, gridTarget, [images, ...gridShape]);
  const ordered = transpose(graph, "patches.ordered", grid, [0, 2, 4, 1, 3, 5]);
  const flatTarget = graph.constant("patches.flat_shape", "int64", [2], [-1, patchFeatures]);
  const flat = reshape(graph, "patches.flat", ordered, flatTarget, [patches, patchFeatures]);
  const projection: LinearLayer = {
    name: `${prefix}embeddings.patch_embedding`,
    inFeatures: patchFeatures,
    outFeatures: hiddenSize,
    hasBias: false,
    storedShape: [hiddenSize, numChannels, patchSize, patchSize],
  };
  // Pixels are what everything else is computed from, and this is a small part of the work: never quantised.
  const projected = linear(context, flat, projection, { kind: "plain", elementType: precision.activations });
  const batchTarget = graph.constant("patches.batch_shape", "int64", [3], [-1, count, hiddenSize]);
  const batched = reshape(graph, "patches.batched", projected, batchTarget, [images, count, hiddenSize]);

  const className = `${prefix}embeddings.class_embedding`;
  const { weight: classWeight } = weights.prepared({
    name: className,
    sources: [className],
    shape: [hiddenSize],
    format: { kind: "plain", elementType: precision.activations },
  });
  const classEmbedding = graph.externalTensor(className, classWeight, [1, 1, hiddenSize]);
  const oneByOne = graph.constant("vision.one_by_one", "int64", [2], [1, 1]);
  const classTarget = concat(graph, "class.shape", [shapeOf(graph, "num_images", pixels, 1), oneByOne], 0);
  const classTokens = expand(graph, "class.tokens", classEmbedding, classTarget, [images, 1, hiddenSize]);
  const withClass = concat(graph, "patches.with_class", [classTokens, batched], 1);
  const positions = parameter(context, `${prefix}embeddings.position_embedding.weight`, [count + 1, hiddenSize]);
  return add(graph, "embedded", withClass, positions);
}

function encoderLayer(
  context: GraphContext,
  config: VisionConfig,
  name: string,
  hidden: Value,
  batchShape: Value,
): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize, numHeads } = config;
  const shape = [images, numPatches(config) + 1, hiddenSize];
  const layer = (part: string, inFeatures: number, outFeatures: number): LinearLayer => ({
    name: `${name}.${part}`,
    inFeatures,
    outFeatures,
    hasBias: true,
  });

  const attentionInput = norm(context, config, `${name}.layer_norm1`, hidden);
  const [query, key, value] = ["q", "k", "v"].map((part) => {
    const projection = layer(`self_attn.${part}_proj`, hiddenSize, hiddenSize);
    const flat = linear(context, attentionInput, projection, precision.vision);
    return reshape(graph, `${name}.self_attn.${part}`, flat, batchShape, shape);
  });
  const attended = multiHeadAttention(graph, `${name}.self_attn`, { query, key, value, numHeads });
  const flatShape = graph.constant("vision.flat_shape", "int64", [2], [-1, hiddenSize]);
  const flat = reshape(graph, `${name}.self_attn.flat`, attended, flatShape, [tokens, hiddenSize]);
  const projected = linear(context, flat, layer("self_attn.out_proj", hiddenSize, hiddenSize), precision.vision);
  const middle = add(graph, `${name}.after_attention`, hidden, projected);

  const perceptronInput = norm(context, config, `${name}.layer_norm2`, middle);
  const up = linear(context, perceptronInput, layer("mlp.fc1", hiddenSize, intermediateSize), precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, up, config.activation);
  const down = linear(context, activated, layer("mlp.fc2", intermediateSize, hiddenSize), precision.vision);
  return add(graph, `${name}.after_mlp`, middle, down);
}

function norm(context: GraphContext, config: VisionConfig, name: string, input: Value): Value {
  const weight = parameter(context, `${name}.weight`, [config.hiddenSize]);
  const bias = parameter(context, `${name}.bias`, [config.hiddenSize]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: config.layerNormEpsilon });
}
