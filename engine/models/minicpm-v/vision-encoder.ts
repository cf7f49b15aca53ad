/**
 * From the patches of a picture and its slices to embeddings: SigLIP's layers, after some of which windows of 2 x 2
 * patches become one row each, and a merger of squares of 2 x 2 rows.
 */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, divide, gatherRows, layerNormalization, meanOfAxis, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { embedStillPatches } from "../patches/patch-embedding.ts";
import { mergePatches } from "../patches/patch-merger.ts";
import { patches } from "../patches/patch-rotary.ts";
import { firstRows } from "../vision-transformer/crop-attention.ts";
import { attentionBlock, encoderLayer, layerNorm, type Attend } from "../vision-transformer/encoder-layers.ts";
import type { MiniCpmVConfig, MiniCpmVVisionConfig } from "./config.ts";
import { attendWithinSlices, cropNames, cropSizes, PATCHES_PER_WINDOW, type CropSizes } from "./crop-rows.ts";

const pixelValues = "pixel_values";
const positionIds = "position_ids";
const sliceGrid = "slice_grid";
const windows = "numWindows";
const squares = "numSquares";

const towerPrefix = "model.vision_tower.";
const mergerName = "model.merger.mlp.0";
const MERGER_NORM_EPSILON = 1e-6;

/** Inputs as made by the pixel program. */
export function miniCpmVVisionEncoder(config: MiniCpmVConfig): VisionEncoderDefinition {
  const { patchSize, mergeSize, positionsPerSide } = config.vision;
  return {
    inputs: [
      { name: pixelValues, elementType: "float32", shape: [patches, patchFeatures(config.vision)] },
      { name: positionIds, elementType: "int64", shape: [patches] },
      { name: sliceGrid, elementType: "int64", shape: [6] },
    ],
    imageSize: patchSize * mergeSize,
    numImageTokens: 1,
    imageOptions: {
      model_patch_size: patchSize,
      model_downsample_mode: mergeSize === 4 ? "16x" : "4x",
      positions_per_side: positionsPerSide,
      ...(config.markerIds && { marker_ids: config.markerIds }),
    },
    largestSizes(numEmbeddings) {
      // One square more, for pictures without slices.
      const numPatches = (numEmbeddings + 1) * mergeSize ** 2;
      const numWindows = numPatches / PATCHES_PER_WINDOW;
      // Each part alone can have nearly all rows.
      return new Map([
        [patches, numPatches],
        [windows, numWindows],
        ...cropNames(patches).map((name) => [name, numPatches] as const),
        ...cropNames(windows).map((name) => [name, numWindows] as const),
      ]);
    },
    build: (context) => buildVisionEncoder(context, config),
  };
}

function patchFeatures({ numChannels, patchSize }: MiniCpmVVisionConfig): number {
  return numChannels * patchSize ** 2;
}

/** To `image_features` [1, numPatches / mergeSize^2, hiddenSize]. */
function buildVisionEncoder(context: GraphContext, { vision, text }: MiniCpmVConfig): void {
  const { graph } = context;
  const features = patchFeatures(vision);
  const pixels = graph.input(pixelValues, "float32", [1, patches, features]);
  const positions = graph.input(positionIds, "int64", [1, patches]);
  const grid = graph.input(sliceGrid, "int64", [1, 6]);
  let hidden = embedPatches(context, vision, pixels, positions);
  const sizes = cropSizes(context, grid);
  let attend = attendWithinSlices(context, vision, sizes, { rows: patches, patchesPerRow: 1 });
  for (let layer = 0; layer < vision.numLayers; layer++) {
    hidden = encoderLayer(context, vision, `${towerPrefix}encoder.layers.${layer}`, hidden, { attend });
    if (layer + 1 !== vision.windowMergerLayer) continue;
    hidden = mergeWindows(context, vision, hidden);
    attend = attendWithinSlices(context, vision, sizes, { rows: windows, patchesPerRow: PATCHES_PER_WINDOW });
  }
  const states = layerNorm(context, vision, `${towerPrefix}post_layernorm`, hidden);
  const merged = mergeSquares(context, vision, states, text.hiddenSize);
  const item = cast(graph, "merged.cast", ofPicture(context, vision, sizes, merged), "float32");
  graph.output(reshapeTo(graph, "image_features", item, [1, "numEmbeddings", text.hiddenSize]));
}

/** Without the embedding of the square that stands for missing slices. */
function ofPicture(
  context: GraphContext,
  { mergeSize }: MiniCpmVVisionConfig,
  { ofWhole, numSlices, ofSlice }: CropSizes,
  merged: Value,
): Value {
  const { graph } = context;
  const ofSlices = multiply(graph, "picture.slices", numSlices, ofSlice);
  const numPatches = add(graph, "picture.patches", ofWhole, ofSlices);
  const count = divide(graph, "picture.squares", numPatches, int64Scalar(graph, mergeSize ** 2));
  return firstRows(context, "picture.embeddings", merged, { count, size: "numEmbeddings" });
}

/** [numPatches, hiddenSize]. */
function embedPatches(context: GraphContext, vision: MiniCpmVVisionConfig, pixels: Value, positions: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize, positionsPerSide } = vision;
  const features = patchFeatures(vision);
  const flat = reshapeTo(graph, "patches.flat", pixels, [patches, features]);
  const rows = cast(graph, "pixels", flat, precision.activations);
  const kernel = { ...vision, embedDim: hiddenSize };
  const embedded = embedStillPatches(context, kernel, `${towerPrefix}embeddings.patch_embedding`, rows);
  const tableName = `${towerPrefix}embeddings.position_embedding.weight`;
  const table = parameter(context, tableName, [positionsPerSide ** 2, hiddenSize]);
  const ids = reshapeTo(graph, "positions.flat", positions, [patches]);
  return add(graph, "patches.placed", embedded, gatherRows(graph, "positions", table, ids));
}

/** [numPatches, hiddenSize] to [numWindows, hiddenSize]: attention within each window, then a perceptron over all of it. */
function mergeWindows(context: GraphContext, vision: MiniCpmVVisionConfig, hidden: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize, numHeads, layerNormEpsilon: epsilon } = vision;
  const name = `${towerPrefix}vit_merger`;
  const byWindow = (part: string, rows: Value): Value =>
    reshapeTo(graph, `${name}.${part}`, rows, [windows, PATCHES_PER_WINDOW, hiddenSize]);
  const attend: Attend = (attention, { query, key, value }) => {
    const parts = { query: byWindow("q", query), key: byWindow("k", key), value: byWindow("v", value) };
    const attended = multiHeadAttention(graph, attention, { ...parts, numHeads });
    return reshapeTo(graph, `${attention}.flat`, attended, [patches, hiddenSize]);
  };
  const seen = attentionBlock(context, vision, name, hidden, { attend });
  const means = meanOfAxis(graph, `${name}.means`, byWindow("patches", seen), 1);
  const width = PATCHES_PER_WINDOW * hiddenSize;
  const innerWidth = PATCHES_PER_WINDOW * intermediateSize;
  const wide = reshapeTo(graph, `${name}.wide`, seen, [windows, width]);
  const normalised = wideNorm(context, `${name}.pre_norm`, wide, { width, epsilon });
  const up = { name: `${name}.linear_1`, inFeatures: width, outFeatures: innerWidth, hasBias: true };
  const down = { name: `${name}.linear_2`, inFeatures: innerWidth, outFeatures: hiddenSize, hasBias: true };
  const raised = linear(context, normalised, up, precision.vision);
  const activated = applyActivation(graph, `${name}.activation`, raised, "gelu_pytorch_tanh");
  return add(graph, `${name}.merged`, linear(context, activated, down, precision.vision), means);
}

/** Rows of 2 x 2 squares to [numSquares, outFeatures]. */
function mergeSquares(
  context: GraphContext,
  { hiddenSize: embedDim }: MiniCpmVVisionConfig,
  states: Value,
  outFeatures: number,
): Value {
  const { graph } = context;
  const width = PATCHES_PER_WINDOW * embedDim;
  const wide = reshapeTo(graph, "merger.wide", states, [squares, width]);
  const normalised = wideNorm(context, `${mergerName}.pre_norm`, wide, { width, epsilon: MERGER_NORM_EPSILON });
  return mergePatches(context, { embedDim, mergeSize: 2 }, mergerName, normalised, outFeatures, [
    "linear_1",
    "linear_2",
  ]);
}

function wideNorm(
  context: GraphContext,
  name: string,
  input: Value,
  { width, epsilon }: { readonly width: number; readonly epsilon: number },
): Value {
  const weight = parameter(context, `${name}.weight`, [width]);
  const bias = parameter(context, `${name}.bias`, [width]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon });
}
