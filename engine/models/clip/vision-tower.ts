/** The CLIP vision tower: a class token before the patches, and a norm before the first layer. */
import type { Value } from "../../graph/value.ts";
import { unsupportedField } from "../config-field.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { withClassToken } from "../vision-transformer/class-token.ts";
import { numPatches, parseVisionConfig, type VisionConfig } from "../vision-transformer/config.ts";
import { buildEncoderLayers, flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";
import { embedPatches } from "../vision-transformer/patch-embedding.ts";
import type { VisionTower } from "../vision-transformer/vision-tower.ts";

const defaults = {
  hidden_size: 768,
  num_attention_heads: 12,
  image_size: 224,
  patch_size: 32,
  hidden_act: "quick_gelu",
  layer_norm_eps: 1e-5,
} as const;

export const clipTower: VisionTower = {
  parseConfig(json, path) {
    const config = parseVisionConfig(json, path, defaults);
    if (config.imageSize % config.patchSize !== 0) {
      const reason = `image_size ${config.imageSize} is not a multiple of it`;
      throw unsupportedField(path, "patch_size", config.patchSize, reason);
    }
    return config;
  },
  numTokens: (config) => numPatches(config) + 1,
  build(context, config, prefix, pixels, layers) {
    const tokens = embedPicture(context, config, prefix, pixels);
    const embedded = flattenPictures(context, "embedded.flat", tokens);
    return buildEncoderLayers(context, config, `${prefix}encoder.layers.`, {
      // transformers' spelling.
      embedded: layerNorm(context, config, `${prefix}pre_layrnorm`, embedded),
      shape: [pixels.shape[0]!, numPatches(config) + 1, config.hiddenSize],
      layers,
    });
  },
};

/** [numImages, 1 + numPatches, hiddenSize]. */
function embedPicture(context: GraphContext, config: VisionConfig, prefix: string, pixels: Value): Value {
  const { graph, weights, precision } = context;
  const { hiddenSize } = config;
  const convolution = { name: `${prefix}embeddings.patch_embedding`, hasBias: false };
  const patches = embedPatches(context, config, convolution, pixels);

  const className = `${prefix}embeddings.class_embedding`;
  const { weight: classWeight } = weights.prepared({
    name: className,
    sources: [className],
    shape: [hiddenSize],
    format: { kind: "plain", elementType: precision.activations },
  });
  const classEmbedding = graph.externalTensor(className, classWeight, [1, 1, hiddenSize]);
  const positionName = `${prefix}embeddings.position_embedding.weight`;
  const positions = parameter(context, positionName, [numPatches(config) + 1, hiddenSize]);
  return withClassToken(context, patches, { classToken: classEmbedding, positions, pixels });
}
