/** Qwen2-VL's vision tower: patches rotated by their position, attention over the whole picture, merged squares. */
import { multiHeadAttention, rotaryEmbedding, type RotaryTables } from "../../graph/contrib-ops.ts";
import {
  add,
  cast,
  concat,
  cosine,
  divide,
  gatherRows,
  layerNormalization,
  modulo,
  multiply,
  range,
  reshape,
  shapeOf,
  sine,
  split,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import type { Qwen2VlVisionConfig } from "./config.ts";

export const patches = "numPatches";
const LAYER_NORM_EPSILON = 1e-6;

/** Number of features of a patch: its pixels in every picture that it spans, [channels, temporal, height, width]. */
export function patchFeatures({ numChannels, temporalPatchSize, patchSize }: Qwen2VlVisionConfig): number {
  return numChannels * temporalPatchSize * patchSize * patchSize;
}

interface Rotary extends RotaryTables {
  /** int64 [1, numPatches]: each patch has its own rows in the tables. */
  readonly positions: Value;
}

/**
 * @param prefix Prefix of the tower's tensors, e.g. "model.visual."
 * @param pixels float [numPatches, features], the patches of a square to be merged side by side, row by row of squares.
 * @param grid int64 [1, 3]: 1 (a still picture), rows and columns of patches.
 * @param outFeatures The decoder's width.
 * @returns float [numPatches / mergeSize^2, outFeatures].
 */
export function buildVisionTower(
  context: GraphContext,
  config: Qwen2VlVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: { readonly pixels: Value; readonly grid: Value; readonly outFeatures: number },
): Value {
  const { precision } = context;
  const { numChannels, temporalPatchSize, patchSize, embedDim } = config;
  const projection: LinearLayer = {
    name: `${prefix}patch_embed.proj`,
    inFeatures: patchFeatures(config),
    outFeatures: embedDim,
    hasBias: false,
    storedShape: [embedDim, numChannels, temporalPatchSize, patchSize, patchSize],
  };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  let hidden = linear(context, pixels, projection, { kind: "plain", elementType: precision.activations });
  const rotary = createRotary(context, config, pixels, grid);
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = block(context, config, `${prefix}blocks.${layer}`, hidden, rotary);
  }
  return merge(context, config, `${prefix}merger`, hidden, outFeatures);
}

/** Angles of each patch: half of the frequencies rotate with its row, half with its column. */
function createRotary(
  { graph, precision }: GraphContext,
  { embedDim, numHeads, mergeSize, ropeTheta }: Qwen2VlVisionConfig,
  pixels: Value,
  grid: Value,
): Rotary {
  const scalar = (value: number): Value => graph.constant(`int64.scalar.${value}`, "int64", [], [value]);
  const flatGrid = reshape(graph, "grid.flat", grid, graph.constant("grid.shape", "int64", [1], [3]), [3]);
  const numColumns = gatherRows(graph, "grid.columns", flatGrid, scalar(2));
  const numPatches = gatherRows(graph, "patches.count", shapeOf(graph, "patches.shape", pixels, 1), scalar(0));
  const index = range(graph, "patch", numPatches, patches);
  const squareSize = scalar(mergeSize * mergeSize);
  const side = scalar(mergeSize);
  const squaresPerRow = divide(graph, "squares_per_row", numColumns, side);
  const square = divide(graph, "patch.square", index, squareSize);
  const inner = modulo(graph, "patch.inner", index, squareSize);
  const axis = (name: string, outer: Value, within: Value): Value =>
    add(graph, `patch.${name}`, multiply(graph, `patch.${name}.first`, outer, side), within);
  const row = axis(
    "row",
    divide(graph, "patch.square.row", square, squaresPerRow),
    divide(graph, "patch.inner.row", inner, side),
  );
  const column = axis(
    "column",
    modulo(graph, "patch.square.column", square, squaresPerRow),
    modulo(graph, "patch.inner.column", inner, side),
  );

  const numFrequencies = embedDim / numHeads / 4;
  const frequencies = new Float32Array(numFrequencies).map(
    (_, frequency) => 1 / Math.fround(ropeTheta ** (frequency / numFrequencies)),
  );
  const frequencyRow = graph.constant("vision.frequencies", "float32", [1, numFrequencies], frequencies);
  const columnShape = graph.constant("column_shape", "int64", [2], [-1, 1]);
  const anglesOf = (name: string, position: Value): Value => {
    const positions = cast(graph, `${name}.float`, position, "float32");
    const asColumn = reshape(graph, `${name}.column`, positions, columnShape, [patches, 1]);
    return multiply(graph, `${name}.angles`, asColumn, frequencyRow);
  };
  const angles = concat(graph, "angles", [anglesOf("rows", row), anglesOf("columns", column)], 1);
  const oneRow = graph.constant("one_row", "int64", [2], [1, -1]);
  return {
    cosCache: cast(graph, "angles.cos.cast", cosine(graph, "angles.cos", angles), precision.activations),
    sinCache: cast(graph, "angles.sin.cast", sine(graph, "angles.sin", angles), precision.activations),
    positions: reshape(graph, "patch.own_row", index, oneRow, [1, patches]),
  };
}

function block(context: GraphContext, config: Qwen2VlVisionConfig, name: string, hidden: Value, rotary: Rotary): Value {
  const { graph, precision } = context;
  const { embedDim, intermediateSize } = config;
  const attended = attention(context, config, `${name}.attn`, norm(context, `${name}.norm1`, hidden, embedDim), rotary);
  const middle = add(graph, `${name}.after_attention`, hidden, attended);
  const up = { name: `${name}.mlp.fc1`, inFeatures: embedDim, outFeatures: intermediateSize, hasBias: true };
  const down = { name: `${name}.mlp.fc2`, inFeatures: intermediateSize, outFeatures: embedDim, hasBias: true };
  const raised = linear(context, norm(context, `${name}.norm2`, middle, embedDim), up, precision.vision);
  const activated = applyActivation(graph, `${name}.mlp.activation`, raised, config.activation);
  return add(graph, `${name}.after_mlp`, middle, linear(context, activated, down, precision.vision));
}

function attention(
  context: GraphContext,
  { embedDim, numHeads }: Qwen2VlVisionConfig,
  name: string,
  input: Value,
  { positions, ...tables }: Rotary,
): Value {
  const { graph, precision } = context;
  const layer = { name: `${name}.qkv`, inFeatures: embedDim, outFeatures: 3 * embedDim, hasBias: true };
  const packed = linear(context, input, layer, precision.vision);
  const parts = split(graph, `${name}.parts`, packed, { axis: 1, sizes: [embedDim, embedDim, embedDim] });
  const batchShape = graph.constant("vision.batch_shape", "int64", [3], [1, -1, embedDim]);
  const [query, key, value] = parts.map((part, index) =>
    reshape(graph, `${name}.batched.${index}`, part, batchShape, [1, patches, embedDim]),
  );
  const attended = multiHeadAttention(graph, name, {
    query: rotaryEmbedding(graph, `${name}.query.rotated`, { input: query!, positions, ...tables }),
    key: rotaryEmbedding(graph, `${name}.key.rotated`, { input: key!, positions, ...tables }),
    value: value!,
    numHeads,
  });
  const flatShape = graph.constant("vision.flat_shape", "int64", [2], [-1, embedDim]);
  const flat = reshape(graph, `${name}.flat`, attended, flatShape, [patches, embedDim]);
  const output = { name: `${name}.proj`, inFeatures: embedDim, outFeatures: embedDim, hasBias: true };
  return linear(context, flat, output, precision.vision);
}

/** Puts the patches of each square side by side, and projects them by two layers to the decoder's width. */
function merge(
  context: GraphContext,
  { embedDim, mergeSize }: Qwen2VlVisionConfig,
  name: string,
  hidden: Value,
  outFeatures: number,
): Value {
  const { graph, precision } = context;
  const inFeatures = embedDim * mergeSize * mergeSize;
  const squareShape = graph.constant("merger.shape", "int64", [2], [-1, inFeatures]);
  const normalised = norm(context, `${name}.ln_q`, hidden, embedDim);
  const squares = reshape(graph, `${name}.squares`, normalised, squareShape, ["numSquares", inFeatures]);
  const first = { name: `${name}.mlp.0`, inFeatures, outFeatures: inFeatures, hasBias: true };
  const activated = applyActivation(graph, `${name}.mlp.1`, linear(context, squares, first, precision.vision), "gelu");
  return linear(
    context,
    activated,
    { name: `${name}.mlp.2`, inFeatures, outFeatures, hasBias: true },
    precision.vision,
  );
}

function norm(context: GraphContext, name: string, input: Value, size: number): Value {
  const weight = parameter(context, `${name}.weight`, [size]);
  const bias = parameter(context, `${name}.bias`, [size]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: LAYER_NORM_EPSILON });
}
