/** Granite 4 Vision: a picture in tiles, with features for many layers of Granite's decoder. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { concat, gatherRows, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import { anyresImageOptions } from "../llava-next/image-options.ts";
import { llavaNextInputs } from "../llava-next/processor.ts";
import { decoderNames, towerPrefixes } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { createTileEncoder, embeddings, tiles } from "../tiles/tile-encoder.ts";
import { findPrefix } from "../weight-source.ts";
import { parseGranite4VisionConfig, type Granite4VisionConfig } from "./config.ts";
import { projectLevel } from "./projectors.ts";

export const granite4VisionDefinition: ModelDefinition = {
  architecture: "Granite4VisionForConditionalGeneration",
  images: llavaNextInputs,
  configure(json): ConfiguredModel {
    const config = parseGranite4VisionConfig(json);
    const { text, resolutions, featuresPerSide, vision } = config;
    const imageLevelLayers = levelsBehindFirst(config).map(({ decoderLayer }) => decoderLayer);
    const imageWidth = (1 + imageLevelLayers.length) * text.hiddenSize;
    const processorDefaults = { tileSize: 224, cropsTiles: true };
    return {
      decoder: { ...decoderDimensions(text), imageWidth },
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: createTileEncoder({
        ...vision,
        numImageTokens: featuresPerSide ** 2,
        hiddenSize: imageWidth,
        hasProjector: true,
        imageOptions: anyresImageOptions({ resolutions, processorDefaults, featuresPerSide, mostTiles: null }),
        largestSizes: (numEmbeddings) =>
          new Map([
            [tiles, 1 + mostTilesOf(config)],
            [embeddings, numEmbeddings],
          ]),
        moreInputs: [{ name: "feature_rows", elementType: "int64", shape: [embeddings] }],
        refusesExports: "layers of the decoder get features of pictures, for which exports have no input",
        embed: (context, pixels, [rows]) => embedTiles(context, config, pixels, rows!),
      }),
      buildDecoder(context, maxModelLen) {
        const names = decoderNames(context.weights);
        buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen, imageLevelLayers });
      },
    };
  },
};

/** The features for the first layer take the place of embeddings. */
function levelsBehindFirst({ levels }: Granite4VisionConfig): Granite4VisionConfig["levels"] {
  return levels.filter(({ decoderLayer }) => decoderLayer > 0);
}

function mostTilesOf({ resolutions, vision: { imageSize } }: Granite4VisionConfig): number {
  return Math.max(
    ...resolutions.map(([height, width]) => Math.ceil(height / imageSize) * Math.ceil(width / imageSize)),
  );
}

const newlinePrefixes = ["", "model."];
const projectorPrefixes = ["", "model."];

/** The features of all tiles and the end of a row, in the order of `rows`: [numEmbeddings, imageWidth]. */
function embedTiles(context: GraphContext, config: Granite4VisionConfig, pixels: Value, rows: Value): Value {
  const { graph, weights } = context;
  const { vision, levels, text } = config;
  const { hiddenSize } = text;
  const wanted = [...new Set(levels.map(({ towerLayers }) => towerLayers))].sort((left, right) => left - right);
  const tower = findPrefix(weights, towerPrefixes, "embeddings.patch_embedding.weight");
  const states = siglipTower.build(context, vision, tower, pixels, wanted);
  const prefix = findPrefix(weights, projectorPrefixes, `${levels[0]!.projector}query`);
  const newlineName = `${findPrefix(weights, newlinePrefixes, "image_newline")}image_newline`;
  const own = { ...context, precision: context.projectorPrecision };
  const newline = reshapeTo(graph, "newline.row", parameter(own, newlineName, [hiddenSize]), [1, hiddenSize]);
  const tables = levels.map((level) => {
    const features = projectLevel(context, config, prefix, {
      level,
      states: states[wanted.indexOf(level.towerLayers)]!,
    });
    return concat(graph, `${level.projector}with_newline`, [features, newline], 0, "numFeatures");
  });
  // The decoder multiplies embeddings, and features for its first layer are added behind that.
  const [first] = levels;
  const share = first?.decoderLayer === 0 ? 1 / (text.multipliers?.embedding ?? 1) : 0;
  const factor = graph.constant("embeddings.factor", tables[0]!.elementType, [1], [share]);
  const embedded = multiply(graph, "embeddings.first", tables[0]!, factor);
  const table = concat(
    graph,
    "levels",
    [embedded, ...tables.slice(levels.length - levelsBehindFirst(config).length)],
    1,
  );
  return gatherRows(graph, "embeddings", table, reshapeTo(graph, "feature_rows.flat", rows, [embeddings]));
}
