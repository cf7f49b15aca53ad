/** InternViT: a class token, and learned factors of what each layer adds. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { embedWithClassToken } from "../vision-transformer/class-token.ts";
import { numPatches } from "../vision-transformer/config.ts";
import { buildEncoderLayers, flattenPictures, type LayerForm } from "../vision-transformer/encoder-layers.ts";
import { findPrefix } from "../weight-source.ts";
import type { InternVisionConfig, TensorNaming } from "./config.ts";

interface TowerNames {
  readonly prefixes: readonly string[];
  readonly convolution: string;
  readonly classToken: string;
  readonly positions: string;
  readonly layers: string;
  readonly form: Omit<LayerForm, "hasQkvBias" | "queryAndKeyNorms" | "norms">;
}

const towerNames: Readonly<Record<TensorNaming, TowerNames>> = {
  transformers: {
    prefixes: ["vision_tower.", "model.vision_tower."],
    convolution: "embeddings.patch_embeddings.projection",
    classToken: "embeddings.cls_token",
    positions: "embeddings.position_embeddings",
    layers: "encoder.layer.",
    form: {
      firstNorm: "layernorm_before",
      attention: "attention",
      output: "projection_layer",
      secondNorm: "layernorm_after",
      scales: { attention: "lambda_1", perceptron: "lambda_2" },
    },
  },
  original: {
    prefixes: ["vision_model."],
    convolution: "embeddings.patch_embedding",
    classToken: "embeddings.class_embedding",
    positions: "embeddings.position_embedding",
    layers: "encoder.layers.",
    form: {
      firstNorm: "norm1",
      attention: "attn",
      fusedProjection: "qkv",
      output: "proj",
      secondNorm: "norm2",
      scales: { attention: "ls1", perceptron: "ls2" },
    },
  },
};

const QUERY_AND_KEY_NORM_EPSILON = 1e-6;

/**
 * @param pixels float [numImages, channels, imageSize, imageSize].
 * @param layer The wanted hidden state: 0 is before the first layer.
 * @returns [numImages, 1 + numPatches, hiddenSize].
 */
export function buildInternVision(
  context: GraphContext,
  config: InternVisionConfig,
  pixels: Value,
  layer: number,
): Value {
  const { prefixes, convolution, classToken, positions, layers, form } = towerNames[config.naming];
  const prefix = findPrefix(context.weights, prefixes, classToken);
  const names = {
    convolution: { name: `${prefix}${convolution}`, hasBias: true },
    classToken: `${prefix}${classToken}`,
    positions: `${prefix}${positions}`,
  };
  const tokens = embedWithClassToken(context, config, names, pixels);
  const [states] = buildEncoderLayers(context, config, `${prefix}${layers}`, {
    embedded: flattenPictures(context, "embedded.flat", tokens),
    shape: [pixels.shape[0]!, numPatches(config) + 1, config.hiddenSize],
    layers: [layer],
    form: { ...form, ...layerParts(config) },
  });
  return states!;
}

function layerParts({
  hasQkvBias,
  normalisesQueryAndKey,
  norms,
}: InternVisionConfig): Pick<LayerForm, "hasQkvBias" | "queryAndKeyNorms" | "norms"> {
  return {
    hasQkvBias,
    ...(normalisesQueryAndKey && {
      queryAndKeyNorms: { query: "q_norm", key: "k_norm", epsilon: QUERY_AND_KEY_NORM_EPSILON },
    }),
    norms,
  };
}
