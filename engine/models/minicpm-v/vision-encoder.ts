/**
 * From the patches of a picture and its slices to embeddings: SigLIP's layers, after some of which windows of 2 x 2
 * patches become one row each, and a merger of squares of 2 x 2 rows.
 */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { sliceBetween } from "../../graph/selection-ops.ts";
import {
  add,
  cast,
  concat,
  divide,
  gatherRows,
  layerNormalization,
  meanOfAxis,
  multiply,
  reshape,
  split,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { embedStillPatches } from "../qwen2-vl/patch-embedding.ts";
import { mergePatches } from "../qwen2-vl/patch-merger.ts";
import { patches } from "../qwen2-vl/patch-rotary.ts";
import { attentionBlock, encoderLayer, layerNorm, type Attend } from "../vision-transformer/encoder-layers.ts";
import type { MiniCpmVConfig, MiniCpmVVisionConfig } from "./config.ts";
import { attendWithinSlices, cropNames, PATCHES_PER_WINDOW } from "./crop-rows.ts";

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
  let attend = attendWithinSlices(context, vision, grid, { rows: patches, patchesPerRow: 1 });
  for (let layer = 0; layer < vision.numLayers; layer++) {
    hidden = encoderLayer(context, vision, `${towerPrefix}encoder.layers.${layer}`, hidden, { attend });
    if (layer + 1 !== vision.windowMergerLayer) continue;
    hidden = mergeWindows(context, vision, hidden);
    attend = attendWithinSlices(context, vision, grid, { rows: windows, patchesPerRow: PATCHES_PER_WINDOW });
  }
  const states = layerNorm(context, vision, `${towerPrefix}post_layernorm`, hidden);
  const merged = mergeSquares(context, vision, states, text.hiddenSize);
  const itemTarget = graph.constant("item_shape", "int64", [3], [1, -1, text.hiddenSize]);
  const item = cast(graph, "merged.cast", ofPicture(context, vision, grid, merged), "float32");
  graph.output(reshape(graph, "image_features", item, itemTarget, [1, "numEmbeddings", text.hiddenSize]));
}

/** Without the embedding of the square that stands for missing slices. */
function ofPicture({ graph }: GraphContext, { mergeSize }: MiniCpmVVisionConfig, grid: Value, merged: Value): Value {
  const shape = graph.constant("slice_grid.pairs", "int64", [2], [3, 2]);
  const pairs = reshape(graph, "picture.pairs", grid, shape, [3, 2]);
  const scalar = (value: number): Value => graph.constant(`int64.scalar.${value}`, "int64", [], [value]);
  /** int64 [1]. */
  const area = (index: number): Value => {
    const pair = gatherRows(graph, `picture.pair.${index}`, pairs, scalar(index));
    const [height, width] = split(graph, `picture.sides.${index}`, pair, { axis: 0, sizes: [1, 1] as const });
    return multiply(graph, `picture.area.${index}`, height, width);
  };
  const ofSlices = multiply(graph, "picture.slices", area(1), area(2));
  const numPatches = add(graph, "picture.patches", area(0), ofSlices);
  const numSquares = divide(graph, "picture.squares", numPatches, scalar(mergeSize ** 2));
  const outFeatures = Number(merged.shape[1]);
  const starts = graph.constant("int64.zeros", "int64", [2], [0, 0]);
  const width = graph.constant(`int64.${outFeatures}`, "int64", [1], [outFeatures]);
  const ends = concat(graph, "picture.ends", [numSquares, width], 0);
  return sliceBetween(graph, "picture.embeddings", merged, { starts, ends, shape: ["numEmbeddings", outFeatures] });
}

/** [numPatches, hiddenSize]. */
function embedPatches(context: GraphContext, vision: MiniCpmVVisionConfig, pixels: Value, positions: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize, positionsPerSide } = vision;
  const features = patchFeatures(vision);
  const flatTarget = graph.constant("patches.flat_shape", "int64", [2], [-1, features]);
  const flat = reshape(graph, "patches.flat", pixels, flatTarget, [patches, features]);
  const rows = cast(graph, "pixels", flat, precision.activations);
  const kernel = { ...vision, embedDim: hiddenSize };
  const embedded = embedStillPatches(context, kernel, `${towerPrefix}embeddings.patch_embedding`, rows);
  const tableName = `${towerPrefix}embeddings.position_embedding.weight`;
  const table = parameter(context, tableName, [positionsPerSide ** 2, hiddenSize]);
  const idTarget = graph.constant("positions.flat_shape", "int64", [1], [-1]);
  const ids = reshape(graph, "positions.flat", positions, idTarget, [patches]);
  return add(graph, "patches.placed", embedded, gatherRows(graph, "positions", table, ids));
}

/** [numPatches, hiddenSize] to [numWindows, hiddenSize]: attention within each window, then a perceptron over all of it. */
function mergeWindows(context: GraphContext, vision: MiniCpmVVisionConfig, hidden: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize, intermediateSize, numHeads, layerNormEpsilon: epsilon } = vision;
  const name = `${towerPrefix}vit_merger`;
  const target = graph.constant("window.shape", "int64", [3], [-1, PATCHES_PER_WINDOW, hiddenSize]);
  const byWindow = (part: string, rows: Value): Value =>
    reshape(graph, `${name}.${part}`, rows, target, [windows, PATCHES_PER_WINDOW, hiddenSize]);
  const attend: Attend = (attention, { query, key, value }) => {
    const parts = { query: byWindow("q", query), key: byWindow("k", key), value: byWindow("v", value) };
    const flatTarget = graph.constant("vision.flat_shape", "int64", [2], [-1, hiddenSize]);
    const attended = multiHeadAttention(graph, attention, { ...parts, numHeads });
    return reshape(graph, `${attention}.flat`, attended, flatTarget, [patches, hiddenSize]);
  };
  const seen = attentionBlock(context, vision, name, hidden, { attend });
  const means = meanOfAxis(graph, `${name}.means`, byWindow("patches", seen), 1);
  const width = PATCHES_PER_WINDOW * hiddenSize;
  const innerWidth = PATCHES_PER_WINDOW * intermediateSize;
  const wideTarget = graph.constant("window.wide_shape", "int64", [2], [-1, width]);
  const wide = reshape(graph, `${name}.wide`, seen, wideTarget, [windows, width]);
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
  const target = graph.constant("merger.shape", "int64", [2], [-1, width]);
  const wide = reshape(graph, "merger.wide", states, target, [squares, width]);
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
