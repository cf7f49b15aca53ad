/** From patches to embeddings: Pixtral's tower, the patch merger of Mistral 3 and LightOnOCR, and the projector of LLaVA. */
import { invariant } from "../../contract/errors.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, concat, divide, gatherRows, multiply, range } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { buildProjector, projectorPrefixes, towerPrefixes } from "../llava/definition.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { patches, placesInSquares } from "../patches/patch-rotary.ts";
import { squareRows } from "../patches/square-rows.ts";
import { rmsNorm } from "../rms-norm.ts";
import { findPrefix } from "../weight-source.ts";
import type { PixtralConfig, PixtralVisionConfig } from "./config.ts";
import { buildVisionTower } from "./vision-tower.ts";

const pixelValues = "pixel_values";
const imageGrid = "image_grid_thw";
/** Patches of whole squares. */
const wholePatches = "numWholePatches";

export function pixtralVisionEncoder(config: PixtralConfig): VisionEncoderDefinition {
  const { patchSize, mergeSize } = config.vision;
  return {
    inputs: [
      { name: pixelValues, elementType: "float32", shape: [patches, numFeatures(config)] },
      { name: imageGrid, elementType: "int64", shape: [3] },
    ],
    imageSize: patchSize * mergeSize,
    numImageTokens: 1,
    patchOrder: { patchSize, mergeSize },
    // transformers.js, for which exports are made, rounds pictures of every model to whole squares.
    exportImageOptions: { rounds_to: "squares" },
    hasProjector: true,
    largestSizes: (numEmbeddings) => largestSizes(config, numEmbeddings),
    build: (context) => buildVisionEncoder(context, config),
  };
}

/** In rows, a picture also has the patches of a last row and column that fill no square. */
function largestSizes({ vision, patchOrder }: PixtralConfig, numEmbeddings: number): ReadonlyMap<string, number> {
  const { mergeSize } = vision;
  const numWhole = numEmbeddings * mergeSize ** 2;
  const side = Math.sqrt(numWhole) + (patchOrder === "rows" ? mergeSize - 1 : 0);
  return new Map([
    [patches, Math.ceil(side ** 2)],
    [wholePatches, numWhole],
  ]);
}

/** `pixel_values` and `image_grid_thw` to `image_features` [1, numPatches / mergeSize^2, hiddenSize]. */
function buildVisionEncoder(context: GraphContext, config: PixtralConfig): void {
  const { graph, weights, precision } = context;
  const { text, featureLayers, patchOrder } = config;
  const vision = patchOrder === "squares" ? config.vision : { ...config.vision, mergeSize: 1 };
  const features = numFeatures(config);
  const input = graph.input(pixelValues, "float32", [1, patches, features]);
  const grid = graph.input(imageGrid, "int64", [1, 3]);
  const flat = reshapeTo(graph, "patches.flat", input, [patches, features]);
  const pixels = cast(graph, "pixels", flat, precision.activations);
  const prefix = findPrefix(weights, towerPrefixes, "patch_conv.weight");
  const states = buildVisionTower(context, vision, prefix, { pixels, grid, featureLayers });
  const [first] = states;
  invariant(first !== undefined, "there is at least one feature layer");
  const hidden = states.length === 1 ? first : concat(graph, "features", states, 1);

  const bySquare = patchOrder === "squares" ? hidden : wholeSquares(context, config.vision, hidden, grid);
  const projector = projectorContext(context, bySquare);
  const projected = buildProjector(
    projector.context,
    {
      activation: config.projectorActivation,
      hasBias: config.projectorHasBias,
      inFeatures: vision.embedDim * states.length,
      outFeatures: text.hiddenSize,
    },
    config.hasPatchMerger ? mergePatches(projector.context, config, projector.input) : projector.input,
  );
  const item = cast(graph, "projected.cast", projected, "float32");
  graph.output(reshapeTo(graph, "image_features", item, [1, "numEmbeddings", text.hiddenSize]));
}

function numFeatures({ vision: { numChannels, patchSize } }: PixtralConfig): number {
  return numChannels * patchSize ** 2;
}

/** The patches of whole squares, [numSquares * mergeSize^2, embedDim], square by square, from those in rows. */
function wholeSquares({ graph }: GraphContext, { mergeSize }: PixtralVisionConfig, rows: Value, grid: Value): Value {
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const flatGrid = reshapeTo(graph, "grid.flat.whole", grid, [3]);
  const [numRows, numColumns] = [1, 2].map((axis) => gatherRows(graph, `whole.grid.${axis}`, flatGrid, scalar(axis)));
  const squareRows = divide(graph, "whole.square_rows", numRows!, scalar(mergeSize));
  const squareColumns = divide(graph, "whole.square_columns", numColumns!, scalar(mergeSize));
  const numSquares = multiply(graph, "whole.squares", squareRows, squareColumns);
  const numPatches = multiply(graph, "whole.patches", numSquares, scalar(mergeSize ** 2));
  const index = range(graph, "whole.index", numPatches, wholePatches);
  const { row, column } = placesInSquares(graph, "whole", { index, numColumns: numColumns!, mergeSize });
  const places = add(graph, "whole.places", multiply(graph, "whole.row_starts", row, numColumns!), column);
  return gatherRows(graph, "whole.rows", rows, places);
}

/**
 * [numPatches, embedDim] to [numSquares, embedDim]: a norm, and a linear layer over the patches of each square. Its
 * inputs are feature by feature, and for each feature patch by patch.
 */
function mergePatches(context: GraphContext, { vision, text }: PixtralConfig, input: Value): Value {
  const { weights, precision } = context;
  const { embedDim, mergeSize } = vision;
  const prefix = findPrefix(weights, projectorPrefixes, "linear_1.weight");
  const normalised = rmsNorm(context, `${prefix}norm`, input, { size: embedDim, epsilon: text.rmsNormEpsilon });
  const patchesPerSquare = mergeSize ** 2;
  const inFeatures = patchesPerSquare * embedDim;
  const flat = squareRows(context, normalised, { size: embedDim, patchesPerSquare });
  const layer = { name: `${prefix}patch_merger.merging_layer`, inFeatures, outFeatures: embedDim, hasBias: false };
  return linear(context, flat, layer, precision.vision);
}
