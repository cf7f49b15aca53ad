/** From Gemma 4's patches to embeddings: the tower, means over squares of patches, a norm and a projection. */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { cast, meanOfAxis, multiply, reshape, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { patches } from "../qwen2-vl/patch-rotary.ts";
import { findPrefix } from "../weight-source.ts";
import type { Gemma4Config, Gemma4VisionConfig } from "./config.ts";
import { buildVisionTower, patchFeatures } from "./vision-tower.ts";

const pixelValues = "pixel_values";
const imageGrid = "image_grid_thw";
const squares = "numSquares";

const towerPrefixes = ["model.vision_tower.", "vision_tower."];
const projectorPrefixes = ["model.embed_vision.", "embed_vision."];

export function gemma4VisionEncoder(config: Gemma4Config): VisionEncoderDefinition {
  const { vision } = config;
  const { patchSize, poolingSize, numPositions } = vision;
  return {
    inputs: [
      { name: pixelValues, elementType: "float32", shape: [patches, patchFeatures(vision)] },
      { name: imageGrid, elementType: "int64", shape: [3] },
    ],
    imageSize: patchSize * poolingSize,
    numImageTokens: 1,
    hasProjector: true,
    imageOptions: {
      patch_size: patchSize,
      pooling_kernel_size: poolingSize,
      position_embedding_size: numPositions,
    },
    largestSizes: (numEmbeddings) =>
      new Map([
        [patches, numEmbeddings * poolingSize ** 2],
        [squares, numEmbeddings],
      ]),
    build: (context) => buildVisionEncoder(context, config),
  };
}

/** `pixel_values` and `image_grid_thw` to `image_features` [1, numPatches / poolingSize^2, hiddenSize]. */
function buildVisionEncoder(context: GraphContext, { vision, text }: Gemma4Config): void {
  const { graph, weights, precision } = context;
  const features = patchFeatures(vision);
  const input = graph.input(pixelValues, "float32", [1, patches, features]);
  const grid = graph.input(imageGrid, "int64", [1, 3]);
  const flatTarget = graph.constant("patches.flat_shape", "int64", [2], [-1, features]);
  const flat = reshape(graph, "patches.flat", input, flatTarget, [patches, features]);
  const pixels = cast(graph, "pixels", flat, precision.activations);
  const towerPrefix = findPrefix(weights, towerPrefixes, "patch_embedder.position_embedding_table");
  const hidden = buildVisionTower(context, vision, towerPrefix, { pixels, grid });
  const pooled = poolSquares(context, vision, towerPrefix, hidden);

  const projector = projectorContext(context, pooled);
  const prefix = findPrefix(weights, projectorPrefixes, "embedding_projection.weight");
  const layer = { name: `${prefix}embedding_projection`, inFeatures: vision.hiddenSize, outFeatures: text.hiddenSize };
  const { precision: own } = projector.context;
  const projected = linear(projector.context, projector.input, { ...layer, hasBias: false }, own.vision);
  const itemTarget = graph.constant("item_shape", "int64", [3], [1, -1, text.hiddenSize]);
  const item = cast(graph, "projected.cast", projected, "float32");
  graph.output(reshape(graph, "image_features", item, itemTarget, [1, "numEmbeddings", text.hiddenSize]));
}

/**
 * float32 [numSquares, hiddenSize]: the mean of each square's patches, scaled, standardised if the model does so, and
 * normalised. All of it is float32 as in transformers, because the scaled means exceed the range of float16.
 */
function poolSquares(
  context: GraphContext,
  { hiddenSize, poolingSize, standardizes, rmsNormEpsilon: epsilon }: Gemma4VisionConfig,
  prefix: string,
  hidden: Value,
): Value {
  const { graph } = context;
  const exact: GraphContext = { ...context, precision: { ...context.precision, activations: "float32" } };
  const patchesPerSquare = poolingSize ** 2;
  const target = graph.constant("pooling.square_shape", "int64", [3], [-1, patchesPerSquare, hiddenSize]);
  const rows = cast(graph, "pooling.float32", hidden, "float32");
  const bySquare = reshape(graph, "pooling.squares", rows, target, [squares, patchesPerSquare, hiddenSize]);
  const means = meanOfAxis(graph, "pooling.means", bySquare, 1);
  const root = graph.constant("pooling.root", "float32", [1], [Math.sqrt(hiddenSize)]);
  const scaled = multiply(graph, "pooling.scaled", means, root);
  const bias = (): Value => parameter(exact, `${prefix}std_bias`, [hiddenSize]);
  const scale = (): Value => parameter(exact, `${prefix}std_scale`, [hiddenSize]);
  const standardised = standardizes
    ? multiply(graph, "pooling.standardised", subtract(graph, "pooling.shifted", scaled, bias()), scale())
    : scaled;
  const ones = Array.from({ length: hiddenSize }, () => 1);
  const weight = graph.constant("pooling.ones", "float32", [hiddenSize], ones);
  return simplifiedLayerNormalization(graph, "pooling.normalised", { input: standardised, weight, epsilon });
}
