/** Idefics3 and SmolVLM: SigLIP encodes every tile of a picture, and squares of its patches become embeddings. */
import { cast, reshape, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";
import { parseIdefics3Config, type Idefics3Config } from "./config.ts";
import { idefics3Inputs } from "./processor.ts";

export const idefics3Definition = createDefinition("Idefics3ForConditionalGeneration");
export const smolVlmDefinition = createDefinition("SmolVLMForConditionalGeneration");

const pixelValues = "pixel_values";
const tiles = "numTiles";

function createDefinition(architecture: string): ModelDefinition {
  return {
    architecture,
    images: idefics3Inputs,
    configure(json): ConfiguredModel {
      const config = parseIdefics3Config(json);
      return {
        decoder: decoderDimensions(config.text),
        maxPositionEmbeddings: config.text.maxPositionEmbeddings,
        imageTokenId: config.imageTokenId,
        visionEncoder: {
          inputs: [{ name: pixelValues, elementType: "float32", shape: [tiles, ...tileShape(config)] }],
          imageSize: config.vision.imageSize,
          numImageTokens: config.numImageTokens,
          build: (context) => buildVisionEncoder(context, config),
        },
        buildDecoder(context, maxModelLen) {
          const names = { prefix: "model.text_model.", headName: "lm_head" };
          buildDecoderGraph(context, { config: config.text, ...names, acceptsImages: true, maxModelLen });
        },
      };
    },
  };
}

function tileShape({ vision: { numChannels, imageSize } }: Idefics3Config): number[] {
  return [numChannels, imageSize, imageSize];
}

/** `pixel_values` [1, numTiles, ...] to `image_features` [1, numTiles * numImageTokens, hiddenSize], tile after tile. */
function buildVisionEncoder(context: GraphContext, config: Idefics3Config): void {
  const { graph, precision } = context;
  const { vision, text } = config;
  const prefix = "model.vision_model.";
  const input = graph.input(pixelValues, "float32", [1, tiles, ...tileShape(config)]);
  const tileTarget = graph.constant("tile_shape", "int64", [4], [-1, ...tileShape(config)]);
  const separate = reshape(graph, "tiles", input, tileTarget, [tiles, ...tileShape(config)]);
  const pixels = cast(graph, "pixels", separate, precision.activations);

  const [hidden] = siglipTower.build(context, vision, prefix, pixels, [vision.numLayers]);
  const flat = flattenPictures(context, "hidden.flat", hidden!);
  const shuffled = shufflePixels(context, config, layerNorm(context, vision, `${prefix}post_layernorm`, flat));
  const projection = {
    name: "model.connector.modality_projection.proj",
    inFeatures: vision.hiddenSize * config.scaleFactor ** 2,
    outFeatures: text.hiddenSize,
    hasBias: false,
  };
  const projected = cast(graph, "projected", linear(context, shuffled, projection, precision.vision), "float32");
  const itemTarget = graph.constant("item_shape", "int64", [3], [1, -1, text.hiddenSize]);
  graph.output(reshape(graph, "image_features", projected, itemTarget, [1, "numEmbeddings", text.hiddenSize]));
}

/**
 * Puts the patches of each `scaleFactor` x `scaleFactor` square into one row, row by row of squares: [embeddings of all
 * tiles, scaleFactor * scaleFactor * hiddenSize].
 */
function shufflePixels({ graph }: GraphContext, { vision, scaleFactor }: Idefics3Config, hidden: Value): Value {
  const { hiddenSize } = vision;
  const side = patchesPerSide(vision) / scaleFactor;
  const gridShape = [side, scaleFactor, side, scaleFactor, hiddenSize];
  const gridTarget = graph.constant("shuffle.grid_shape", "int64", [6], [-1, ...gridShape]);
  const grid = reshape(graph, "shuffle.grid", hidden, gridTarget, [tiles, ...gridShape]);
  const squares = transpose(graph, "shuffle.squares", grid, [0, 1, 3, 2, 4, 5]);
  const squareFeatures = scaleFactor * scaleFactor * hiddenSize;
  const flatTarget = graph.constant("shuffle.flat_shape", "int64", [2], [-1, squareFeatures]);
  return reshape(graph, "shuffle.flat", squares, flatTarget, ["numEmbeddings", squareFeatures]);
}
