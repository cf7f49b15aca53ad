/** InternVL and Qianfan-OCR: InternViT encodes every tile of a picture, and squares of its patches become embeddings. */
import { layerNormalization, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, projectorContext, type GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import { buildProjector, decoderNames, projectorPrefixes } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { createTileEncoder } from "../tiles/tile-encoder.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { flattenPictures } from "../vision-transformer/encoder-layers.ts";
import { shufflePixels } from "../vision-transformer/pixel-shuffle.ts";
import { findPrefix } from "../weight-source.ts";
import { parseInternVlConfig, parseQianfanOcrConfig, type InternVlConfig, type TensorNaming } from "./config.ts";
import { internVlInputs, qianfanInputs } from "./processor.ts";
import { buildInternVision } from "./vision-tower.ts";

export const internVlDefinition: ModelDefinition = {
  architecture: "InternVLForConditionalGeneration",
  images: internVlInputs,
  configure: (json) => configureModel(parseInternVlConfig(json)),
};

/** Its checkpoints have the names of the first InternVL models' tensors. */
export const qianfanOcrDefinition: ModelDefinition = {
  architecture: "QianfanOCRForConditionalGeneration",
  images: qianfanInputs,
  imagePlaceholder: "<image>",
  configure: (json) => configureModel(parseQianfanOcrConfig(json)),
};

function configureModel(config: InternVlConfig): ConfiguredModel {
  const { text } = config;
  return {
    decoder: decoderDimensions(text),
    maxPositionEmbeddings: text.maxPositionEmbeddings,
    imageTokenId: config.imageTokenId,
    visionEncoder: createTileEncoder({
      ...config.vision,
      numImageTokens: config.numImageTokens,
      hiddenSize: text.hiddenSize,
      hasProjector: true,
      // Both processors ask for tiles whatever preprocessor_config.json says.
      imageOptions: { crop_to_patches: true },
      embed: (context, pixels) => embedTiles(context, config, pixels),
    }),
    buildDecoder(context, maxModelLen) {
      const names = decoderNames(context.weights);
      buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen });
    },
  };
}

interface ProjectorNames {
  readonly prefixes: readonly string[];
  readonly norm: string;
  readonly linears: readonly [first: string, second: string];
}

const projectorNames: Readonly<Record<TensorNaming, ProjectorNames>> = {
  transformers: { prefixes: projectorPrefixes, norm: "layer_norm", linears: ["linear_1", "linear_2"] },
  original: { prefixes: ["mlp1."], norm: "0", linears: ["1", "3"] },
};

/** PyTorch's default. */
const PROJECTOR_NORM_EPSILON = 1e-5;

/** Pixels of tiles, [numTiles, ...], to [numTiles * numImageTokens, hiddenSize], tile after tile. */
function embedTiles(context: GraphContext, config: InternVlConfig, pixels: Value): Value {
  const { graph, weights } = context;
  const { vision, text, square } = config;
  const states = buildInternVision(context, vision, pixels, config.featureLayer);
  const patches = flattenPictures(
    context,
    "patches.states",
    slice(graph, "patches.only", states, { axis: 1, start: 1 }),
  );
  const shape = { side: patchesPerSide(vision), square, hiddenSize: vision.hiddenSize };
  const projector = projectorContext(context, shufflePixels(context, patches, shape));
  const inFeatures = vision.hiddenSize * square ** 2;
  const { prefixes, norm, linears } = projectorNames[vision.naming];
  const prefix = findPrefix(weights, prefixes, `${norm}.weight`);
  const name = `${prefix}${norm}`;
  const normalised = layerNormalization(graph, name, projector.input, {
    weight: parameter(projector.context, `${name}.weight`, [inFeatures]),
    bias: parameter(projector.context, `${name}.bias`, [inFeatures]),
    epsilon: PROJECTOR_NORM_EPSILON,
  });
  const projection = {
    activation: config.projectorActivation,
    hasBias: true,
    inFeatures,
    outFeatures: text.hiddenSize,
    names: { first: `${prefix}${linears[0]}`, second: `${prefix}${linears[1]}` },
  };
  return buildProjector(projector.context, projection, normalised);
}
