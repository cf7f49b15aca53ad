/** Granite-Docling (`ibm-granite/granite-for-docling-500m`): pages in tiles, on a coarse or a fine path. */
import { sliceBetween, sliceFrom } from "../../graph/selection-ops.ts";
import { add, concat, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { VisionEncoderInput } from "../built-model.ts";
import type { GraphContext } from "../graph-context.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { createTileEncoder, embeddings, tiles } from "../tiles/tile-encoder.ts";
import { numPatches } from "../vision-transformer/config.ts";
import { flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";
import { FINE_FACTOR, parseGraniteDoclingConfig, type GraniteDoclingConfig } from "./config.ts";
import { connectorInput, connectorOutput, pathFeatures, type ConnectorPath, type TowerRows } from "./connector.ts";
import { fineRoute, graniteDoclingInputs } from "./processor.ts";

export const graniteDoclingDefinition: ModelDefinition = {
  architecture: "GraniteDoclingForConditionalGeneration",
  images: graniteDoclingInputs,
  configure(json): ConfiguredModel {
    const config = parseGraniteDoclingConfig(json);
    const { text } = config;
    const numImageLevels = config.levelLayers.length;
    const imageWidth = (1 + numImageLevels) * text.hiddenSize;
    return {
      decoder: { ...decoderDimensions(text), imageWidth },
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: createTileEncoder({
        ...config.vision,
        numImageTokens: config.numImageTokens,
        hiddenSize: imageWidth,
        moreInputs: config.hasFinePath ? [fineInput] : [],
        refusesExports: "the decoder's first layers get features of pictures, for which exports have no input",
        largestSizes(numEmbeddings) {
          const numTiles = Math.ceil(numEmbeddings / config.numImageTokens);
          const numRows = numTiles * numPatches(config.vision);
          return new Map([[tiles, numTiles], ...pathRows.map((rows) => [rows, numRows] as const)]);
        },
        embed: (context, pixels, inputs) => embedTiles(context, config, pixels, inputs),
      }),
      buildDecoder(context, maxModelLen) {
        const names = { prefix: "model.text_model.", headName: "lm_head" };
        buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen, numImageLevels });
      },
    };
  },
};

/** Sizes of the two paths' inputs. */
const pathRows = ["coarseRows", "fineRows"] as const;

/** More rows than any picture has. */
const BEYOND_ANY = 2 ** 31;

/** 1 for a picture on the fine path, otherwise 0. */
const fineInput: VisionEncoderInput = { name: fineRoute, elementType: "int64", shape: [] };

/** Pixels of tiles, [numTiles, ...], to [numEmbeddings, imageWidth], tile after tile. */
function embedTiles(
  context: GraphContext,
  config: GraniteDoclingConfig,
  pixels: Value,
  inputs: readonly Value[],
): Value {
  const prefix = "model.vision_model.";
  const { vision, levelLayers, scaleFactor } = config;
  const wanted = [...levelLayers.map((layer) => layer + 1), vision.numLayers];
  const states = siglipTower.build(context, vision, prefix, pixels, wanted);
  const rows = states.map((value, index) => flattenPictures(context, `states.${index}`, value));
  const last = connectorInput(context, config, layerNorm(context, vision, `${prefix}post_layernorm`, rows.at(-1)!));
  const tower: TowerRows = { last, levels: rows.slice(0, -1) };
  const coarse: ConnectorPath = { name: "coarse", square: scaleFactor };
  const [isFine] = inputs;
  const features =
    isFine === undefined ? pathFeatures(context, config, coarse, tower) : eitherPath(context, config, isFine, tower);
  return connectorOutput(context, config, features);
}

/**
 * The features of the path that `isFine`, int64 [1], chooses. It gets all tiles, and the other path the last one, whose
 * embeddings are left out: not all kernels take inputs without rows, and a branch of the graph would wait for the host
 * on a GPU.
 */
function eitherPath(context: GraphContext, config: GraniteDoclingConfig, isFine: Value, tower: TowerRows): Value {
  const { graph } = context;
  const { scaleFactor, vision, numImageTokens } = config;
  /** int64 [1]: `ifFine` or `ifCoarse`. */
  const either = (name: string, ifFine: number, ifCoarse: number): Value => {
    const difference = graph.constant(`${name}.difference`, "int64", [1], [ifFine - ifCoarse]);
    const least = graph.constant(`${name}.coarse`, "int64", [1], [ifCoarse]);
    return add(graph, name, multiply(graph, `${name}.more`, isFine, difference), least);
  };
  const pathFrom = (path: ConnectorPath, size: (typeof pathRows)[number], start: Value): Value => {
    const rowsOf = (part: string, rows: Value): Value => sliceFrom(graph, `${path.name}.${part}`, rows, start, size);
    const levels = tower.levels.map((rows, level) => rowsOf(`level.${level}`, rows));
    return pathFeatures(context, config, path, { last: rowsOf("last", tower.last), levels });
  };
  const lastTile = -numPatches(vision);
  const paths = [
    pathFrom({ name: "coarse", square: scaleFactor }, "coarseRows", either("coarse.start", lastTile, -BEYOND_ANY)),
    pathFrom({ name: "fine", square: scaleFactor / 2 }, "fineRows", either("fine.start", -BEYOND_ANY, lastTile)),
  ];
  const both = concat(graph, "paths", paths, 0, "bothPaths");
  const none = graph.constant("paths.first_column", "int64", [1], [0]);
  const all = graph.constant("paths.all_columns", "int64", [1], [BEYOND_ANY]);
  const start = either("chosen.start", numImageTokens, 0);
  const end = either("chosen.end", BEYOND_ANY, -FINE_FACTOR * numImageTokens);
  return sliceBetween(graph, "chosen", both, {
    starts: concat(graph, "chosen.starts", [start, none], 0),
    ends: concat(graph, "chosen.ends", [end, all], 0),
    shape: [embeddings, both.shape[1]!],
  });
}
