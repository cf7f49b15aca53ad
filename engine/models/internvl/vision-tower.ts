/** InternViT: a class token, and learned factors of what each layer adds. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { embedWithClassToken } from "../vision-transformer/class-token.ts";
import { numPatches } from "../vision-transformer/config.ts";
import { buildEncoderLayers, flattenPictures, type LayerForm } from "../vision-transformer/encoder-layers.ts";
import { findPrefix } from "../weight-source.ts";
import type { InternVisionConfig } from "./config.ts";

const towerPrefixes = ["vision_tower.", "model.vision_tower."];

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
  const prefix = findPrefix(context.weights, towerPrefixes, "embeddings.cls_token");
  const names = {
    convolution: { name: `${prefix}embeddings.patch_embeddings.projection`, hasBias: true },
    classToken: `${prefix}embeddings.cls_token`,
    positions: `${prefix}embeddings.position_embeddings`,
  };
  const tokens = embedWithClassToken(context, config, names, pixels);
  const [states] = buildEncoderLayers(context, config, `${prefix}encoder.layer.`, {
    embedded: flattenPictures(context, "embedded.flat", tokens),
    shape: [pixels.shape[0]!, numPatches(config) + 1, config.hiddenSize],
    layers: [layer],
    form: layerForm(config),
  });
  return states!;
}

function layerForm({ hasQkvBias, normalisesQueryAndKey, norms }: InternVisionConfig): LayerForm {
  return {
    firstNorm: "layernorm_before",
    attention: "attention",
    output: "projection_layer",
    secondNorm: "layernorm_after",
    hasQkvBias,
    ...(normalisesQueryAndKey && {
      queryAndKeyNorms: { query: "q_norm", key: "k_norm", epsilon: QUERY_AND_KEY_NORM_EPSILON },
    }),
    scales: { attention: "lambda_1", perceptron: "lambda_2" },
    norms,
  };
}
