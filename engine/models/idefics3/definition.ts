/** Idefics3 and SmolVLM: SigLIP encodes every tile of a picture, and squares of its patches become embeddings. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { createTileEncoder } from "../tiles/tile-encoder.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";
import { shufflePixels } from "../vision-transformer/pixel-shuffle.ts";
import { parseIdefics3Config, type Idefics3Config } from "./config.ts";
import { idefics3Inputs, smolVlmInputs } from "./processor.ts";

export const idefics3Definition = createDefinition("Idefics3ForConditionalGeneration", idefics3Inputs);
export const smolVlmDefinition = createDefinition("SmolVLMForConditionalGeneration", smolVlmInputs);

function createDefinition(architecture: string, images: ModelDefinition["images"]): ModelDefinition {
  return {
    architecture,
    images,
    configure(json): ConfiguredModel {
      const config = parseIdefics3Config(json);
      return {
        decoder: decoderDimensions(config.text),
        maxPositionEmbeddings: config.text.maxPositionEmbeddings,
        imageTokenId: config.imageTokenId,
        visionEncoder: createTileEncoder({
          ...config.vision,
          numImageTokens: config.numImageTokens,
          hiddenSize: config.text.hiddenSize,
          embed: (context, pixels) => embedTiles(context, config, pixels),
        }),
        buildDecoder(context, maxModelLen) {
          const names = { prefix: "model.text_model.", headName: "lm_head" };
          buildDecoderGraph(context, { config: config.text, ...names, acceptsImages: true, maxModelLen });
        },
      };
    },
  };
}

/** Pixels of tiles, [numTiles, ...], to [numTiles * numImageTokens, hiddenSize], tile after tile. */
function embedTiles(context: GraphContext, { vision, text, scaleFactor }: Idefics3Config, pixels: Value): Value {
  const prefix = "model.vision_model.";
  const [hidden] = siglipTower.build(context, vision, prefix, pixels, [vision.numLayers]);
  const flat = flattenPictures(context, "hidden.flat", hidden!);
  const shape = { side: patchesPerSide(vision), square: scaleFactor, hiddenSize: vision.hiddenSize };
  const shuffled = shufflePixels(context, layerNorm(context, vision, `${prefix}post_layernorm`, flat), shape);
  const projection = {
    name: "model.connector.modality_projection.proj",
    inFeatures: vision.hiddenSize * scaleFactor ** 2,
    outFeatures: text.hiddenSize,
    hasBias: false,
  };
  return linear(context, shuffled, projection, context.precision.vision);
}
