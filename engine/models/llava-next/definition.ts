/** LLaVA-NeXT and LLaVA-OneVision: LLaVA over the tiles of a picture, with a learned embedding at the end of each row. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, concat, gatherRows, multiply, reshape, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { VisionEncoderInput } from "../built-model.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import { decoderNames, embedPictures } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { createTileEncoder, embeddings, tiles } from "../tiles/tile-encoder.ts";
import { findPrefix } from "../weight-source.ts";
import { parseLlavaNextConfig, parseLlavaOneVisionConfig, type LlavaNextConfig } from "./config.ts";
import { NUM_NEIGHBOURS } from "./feature-rows.ts";
import { anyresImageOptions } from "./image-options.ts";
import { llavaNextInputs, llavaOneVisionInputs } from "./processor.ts";

export const llavaNextDefinition: ModelDefinition = {
  architecture: "LlavaNextForConditionalGeneration",
  images: llavaNextInputs,
  configure: (json) => configureModel(parseLlavaNextConfig(json)),
};

export const llavaOneVisionDefinition: ModelDefinition = {
  architecture: "LlavaOnevisionForConditionalGeneration",
  images: llavaOneVisionInputs,
  configure: (json) => configureModel(parseLlavaOneVisionConfig(json)),
};

function configureModel(config: LlavaNextConfig): ConfiguredModel {
  const { text, anyres } = config;
  return {
    decoder: decoderDimensions(text),
    maxPositionEmbeddings: text.maxPositionEmbeddings,
    imageTokenId: config.imageTokenId,
    visionEncoder: createTileEncoder({
      ...config.vision,
      numImageTokens: config.numImageTokens,
      hiddenSize: text.hiddenSize,
      hasProjector: true,
      imageOptions: anyresImageOptions(anyres),
      largestSizes: (numEmbeddings) =>
        new Map([
          [tiles, 1 + mostTilesOf(config)],
          [embeddings, numEmbeddings],
        ]),
      moreInputs: rowInputs(anyres.mostTiles !== null),
      refusesExports: "it lacks the embedding at the end of each row of a picture (image_newline)",
      embed: (context, pixels, [rows, shares]) => embedTiles(context, config, pixels, { rows: rows!, shares }),
    }),
    buildDecoder(context, maxModelLen) {
      const names = decoderNames(context.weights);
      buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen });
    },
  };
}

function mostTilesOf({ anyres: { resolutions }, vision: { imageSize } }: LlavaNextConfig): number {
  return Math.max(
    ...resolutions.map(([height, width]) => Math.ceil(height / imageSize) * Math.ceil(width / imageSize)),
  );
}

/** As described by `featureRows`. */
function rowInputs(isMixed: boolean): readonly VisionEncoderInput[] {
  if (!isMixed) return [{ name: "feature_rows", elementType: "int64", shape: [embeddings] }];
  const shape = [NUM_NEIGHBOURS, embeddings];
  return [
    { name: "feature_rows", elementType: "int64", shape },
    { name: "feature_shares", elementType: "float32", shape },
  ];
}

const newlinePrefixes = ["", "model."];

/** The features of all tiles and the end of a row, in the order of `rows`: [numEmbeddings, hiddenSize]. */
function embedTiles(
  context: GraphContext,
  config: LlavaNextConfig,
  pixels: Value,
  { rows, shares }: { readonly rows: Value; readonly shares: Value | undefined },
): Value {
  const { graph, weights } = context;
  const { hiddenSize } = config.text;
  const projected = embedPictures(context, config, pixels, hiddenSize);
  const newlineName = `${findPrefix(weights, newlinePrefixes, "image_newline")}image_newline`;
  const newline = parameter(projected.context, newlineName, [hiddenSize]);
  const newlineRow = reshape(
    graph,
    "newline.row",
    newline,
    graph.constant("newline.shape", "int64", [2], [1, hiddenSize]),
    [1, hiddenSize],
  );
  const table = concat(graph, "features.with_newline", [projected.embedded, newlineRow], 0, "numFeatures");
  const flat = graph.constant("feature_rows.flat_shape", "int64", [1], [-1]);
  if (shares === undefined) {
    return gatherRows(graph, "embeddings", table, reshape(graph, "feature_rows.flat", rows, flat, [embeddings]));
  }
  const parts = Array.from({ length: NUM_NEIGHBOURS }, (_, neighbour) => {
    const own = { axis: 1, start: neighbour, end: neighbour + 1 };
    const name = `neighbour.${neighbour}`;
    const ownRows = reshape(graph, `${name}.rows`, slice(graph, `${name}.rows.own`, rows, own), flat, [embeddings]);
    const ownShares = reshapeTo(graph, `${name}.shares`, slice(graph, `${name}.shares.own`, shares, own), [
      embeddings,
      1,
    ]);
    const share = cast(graph, `${name}.shares.cast`, ownShares, projected.context.precision.activations);
    return multiply(graph, name, gatherRows(graph, `${name}.values`, table, ownRows), share);
  });
  return parts.reduce((sum, part, neighbour) => add(graph, `neighbours.${neighbour}`, sum, part));
}
