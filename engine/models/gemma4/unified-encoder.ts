/** From Gemma 4's patches to embeddings without a tower: each square of patches passes norms and two linear layers. */
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import {
  add,
  divide,
  gatherRows,
  layerNormalization,
  modulo,
  multiply,
  range,
  shapeOf,
} from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { byPixel } from "../patches/pixel-order.ts";
import { findPrefix } from "../weight-source.ts";
import type { Gemma4Config } from "./config.ts";
import { createSquareEncoder, normaliseSquares, patchFeatures, squares, type PatchInputs } from "./square-encoder.ts";
import type { SquareEmbedderConfig } from "./unified-config.ts";

/** The hub's, and those of transformers' modules. */
const embedderPrefixes = ["model.vision_embedder.", "vision_embedder.", "model.embed_vision."];
const projectorPrefixes = ["model.embed_vision.", "embed_vision.", "model.embed_vision.multimodal_embedder."];
/** PyTorch's default. */
const LAYER_NORM_EPSILON = 1e-5;

export function unifiedEncoder({ vision, text }: Gemma4Config<SquareEmbedderConfig>): VisionEncoderDefinition {
  return createSquareEncoder(vision, {
    embedSquares: (context, inputs) => embedSquares(context, vision, inputs),
    width: vision.embedDim,
    numPositions: vision.numPositions * vision.poolingSize,
    hiddenSize: text.hiddenSize,
    projectorPrefixes,
  });
}

/** float [numSquares, embedDim], normalised. */
function embedSquares(context: GraphContext, config: SquareEmbedderConfig, { pixels, grid }: PatchInputs): Value {
  const { graph, weights, precision } = context;
  const { embedDim, patchSize, poolingSize, rmsNormEpsilon: epsilon } = config;
  const prefix = findPrefix(weights, embedderPrefixes, "patch_dense.weight");
  const numFeatures = patchFeatures(config) * poolingSize ** 2;
  const rows = byPixel(
    context,
    { patchSize, mergeSize: poolingSize },
    reshapeTo(graph, "squares", pixels, [squares, numFeatures]),
  );
  const layer = { name: `${prefix}patch_dense`, inFeatures: numFeatures, outFeatures: embedDim, hasBias: true };
  // Its inputs are pixels, so it is never quantised.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const embedded = linear(context, norm(context, `${prefix}patch_ln1`, rows, numFeatures), layer, format);
  const normalised = norm(context, `${prefix}patch_ln2`, embedded, embedDim);
  const placed = add(graph, "squares.placed", normalised, positionsOf(context, config, prefix, { rows, grid }));
  const states = norm(context, `${prefix}pos_norm`, placed, embedDim);
  return normaliseSquares(context, "squares.normalised", states, { width: embedDim, epsilon });
}

function norm(context: GraphContext, name: string, input: Value, width: number): Value {
  const weight = parameter(context, `${name}.weight`, [width]);
  const bias = parameter(context, `${name}.bias`, [width]);
  return layerNormalization(context.graph, name, input, { weight, bias, epsilon: LAYER_NORM_EPSILON });
}

/** float [numSquares, embedDim]: the embedding of a square's column, and that of its row. */
function positionsOf(
  context: GraphContext,
  { embedDim, numPositions, poolingSize }: SquareEmbedderConfig,
  prefix: string,
  { rows, grid }: { readonly rows: Value; readonly grid: Value },
): Value {
  const { graph } = context;
  const scalar = (value: number): Value => int64Scalar(graph, value);
  const flatGrid = reshapeTo(graph, "grid.flat", grid, [3]);
  const patchColumns = gatherRows(graph, "grid.columns", flatGrid, scalar(2));
  const numColumns = divide(graph, "grid.square_columns", patchColumns, scalar(poolingSize));
  const numSquares = gatherRows(graph, "squares.count", shapeOf(graph, "squares.shape", rows, 1), scalar(0));
  const index = range(graph, "square", numSquares, squares);
  const name = `${prefix}pos_embedding`;
  const stored = parameter(context, name, [numPositions, 2, embedDim]);
  const table = reshapeTo(graph, `${name}.flat`, stored, [2 * numPositions, embedDim]);
  // A place has two rows in the table: that of a column, then that of a row.
  const first = (axis: string, place: Value): Value => multiply(graph, `positions.${axis}.first`, place, scalar(2));
  const ofColumn = first("column", modulo(graph, "square.column", index, numColumns));
  const ofRow = add(graph, "positions.row", first("row", divide(graph, "square.row", index, numColumns)), scalar(1));
  return add(
    graph,
    "positions.sum",
    gatherRows(graph, "positions.of_column", table, ofColumn),
    gatherRows(graph, "positions.of_row", table, ofRow),
  );
}
