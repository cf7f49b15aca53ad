/** LFM2-VL: SigLIP 2 encodes the tiles of a picture and its whole, and squares of patches become embeddings. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast, layerNormalization } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, projectorContext, type GraphContext } from "../graph-context.ts";
import { buildLfmDecoder } from "../lfm2/decoder-graph.ts";
import { lfmDimensions } from "../lfm2/definition.ts";
import { buildProjector, decoderNames, projectorPrefixes, towerPrefixes } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition, VisionEncoderDefinition } from "../model-definition.ts";
import { patches } from "../patches/patch-rotary.ts";
import {
  buildSiglip2Tower,
  keptPatches,
  patchesOfPicture,
  patchesOfTiles,
  patchesPerTile,
} from "../siglip2/vision-tower.ts";
import { findPrefix } from "../weight-source.ts";
import { parseLfm2VlConfig, type Lfm2VlConfig } from "./config.ts";
import { lfm2VlInputs } from "./processor.ts";

export const lfm2VlDefinition: ModelDefinition = {
  architecture: "Lfm2VlForConditionalGeneration",
  images: lfm2VlInputs,
  configure(json): ConfiguredModel {
    const config = parseLfm2VlConfig(json);
    return {
      decoder: lfmDimensions(config.text),
      maxPositionEmbeddings: config.text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: visionEncoder(config),
      buildDecoder(context, maxModelLen) {
        const names = decoderNames(context.weights);
        buildLfmDecoder(context, { config: config.text, ...names, acceptsImages: true, maxModelLen });
      },
    };
  },
};

/** PyTorch's default. */
const PROJECTOR_NORM_EPSILON = 1e-5;

const pixelValues = "pixel_values";
const spatialShapes = "spatial_shapes";

function visionEncoder(config: Lfm2VlConfig): VisionEncoderDefinition {
  const { vision, projector } = config;
  const patchesPerSquare = projector.square ** 2;
  return {
    inputs: [
      { name: pixelValues, elementType: "float32", shape: [patches, 3 * vision.patchSize ** 2] },
      { name: spatialShapes, elementType: "int64", shape: [2, 2] },
    ],
    imageSize: vision.patchSize * projector.square,
    numImageTokens: 1,
    hasProjector: true,
    refusesExports: "its pictures are padded tiles (pixel_attention_mask), of which this model makes none",
    imageOptions: { encoder_patch_size: vision.patchSize, downsample_factor: projector.square },
    // Tiles and picture have all patches together; how they share them makes no difference.
    largestSizes: (numEmbeddings) =>
      new Map([
        [patches, (numEmbeddings + 1) * patchesPerSquare],
        [patchesOfTiles, numEmbeddings * patchesPerSquare],
        [patchesPerTile, numEmbeddings * patchesPerSquare],
        [patchesOfPicture, patchesPerSquare],
        [keptPatches, numEmbeddings * patchesPerSquare],
      ]),
    build: (context) => buildVisionEncoder(context, config),
  };
}

/** `pixel_values` and `spatial_shapes` to `image_features` [1, numEmbeddings, hiddenSize]. */
function buildVisionEncoder(context: GraphContext, { vision, projector, text }: Lfm2VlConfig): void {
  const { graph, weights, precision } = context;
  const features = 3 * vision.patchSize ** 2;
  const input = graph.input(pixelValues, "float32", [1, patches, features]);
  const givenShapes = graph.input(spatialShapes, "int64", [1, 2, 2]);
  const flat = reshapeTo(graph, "patches.flat", input, [patches, features]);
  const prefix = findPrefix(weights, towerPrefixes, "embeddings.patch_embedding.weight");
  const hidden = buildSiglip2Tower(context, vision, prefix, {
    pixels: cast(graph, "pixels", flat, precision.activations),
    shapes: reshapeTo(graph, "shapes.flat", givenShapes, [2, 2]),
    mergeSize: projector.square,
  });
  const projected = projectSquares(context, hidden, projector, text.hiddenSize);
  const item = cast(graph, "projected.cast", projected, "float32");
  graph.output(reshapeTo(graph, "image_features", item, [1, "numEmbeddings", text.hiddenSize]));
}

/** The patches of each square, which come one after the other, as one row: to [numEmbeddings, outFeatures]. */
function projectSquares(
  context: GraphContext,
  hidden: Value,
  { square, width, activation, hasBias, hasNorm }: Lfm2VlConfig["projector"],
  outFeatures: number,
): Value {
  const { graph, weights } = context;
  const inFeatures = Number(hidden.shape[1]) * square ** 2;
  const rows = reshapeTo(graph, "squares", hidden, ["numEmbeddings", inFeatures]);
  const projector = projectorContext(context, rows);
  const norm = (): Value => {
    const name = `${findPrefix(weights, projectorPrefixes, "layer_norm.weight")}layer_norm`;
    return layerNormalization(graph, name, projector.input, {
      weight: parameter(projector.context, `${name}.weight`, [inFeatures]),
      bias: parameter(projector.context, `${name}.bias`, [inFeatures]),
      epsilon: PROJECTOR_NORM_EPSILON,
    });
  };
  const shape = { activation, hasBias, inFeatures, hiddenFeatures: width, outFeatures };
  return buildProjector(projector.context, shape, hasNorm ? norm() : projector.input);
}
