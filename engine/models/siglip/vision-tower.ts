/** The SigLIP vision tower: patches only, without a class token or a norm before the first layer. */
import { add } from "../../graph/standard-ops.ts";
import { parameter } from "../graph-context.ts";
import { numPatches, parseVisionConfig } from "../vision-transformer/config.ts";
import { buildEncoderLayers, flattenPictures } from "../vision-transformer/encoder-layers.ts";
import { embedPatches } from "../vision-transformer/patch-embedding.ts";
import type { VisionTower } from "../vision-transformer/vision-tower.ts";

const defaults = {
  hidden_size: 768,
  num_attention_heads: 12,
  image_size: 224,
  patch_size: 16,
  hidden_act: "gelu_pytorch_tanh",
  layer_norm_eps: 1e-6,
} as const;

export const siglipTower: VisionTower = {
  parseConfig: (json, path) => parseVisionConfig(json, path, defaults),
  numTokens: numPatches,
  build(context, config, prefix, pixels, layers) {
    const { hiddenSize } = config;
    const numTokens = numPatches(config);
    const convolution = { name: `${prefix}embeddings.patch_embedding`, hasBias: true };
    const patches = embedPatches(context, config, convolution, pixels);
    const positionName = `${prefix}embeddings.position_embedding.weight`;
    const positions = parameter(context, positionName, [numTokens, hiddenSize]);
    const embedded = add(context.graph, "embedded", patches, positions);
    return buildEncoderLayers(context, config, `${prefix}encoder.layers.`, {
      embedded: flattenPictures(context, "embedded.flat", embedded),
      shape: [pixels.shape[0]!, numTokens, hiddenSize],
      layers,
    });
  },
};
