/** HunyuanOCR's vision tower: SigLIP's layers over patches, and a merger that adds embeddings around rows and pictures. */
import { int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { add, concat, divide, expand, reshape, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { embedStillPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs, TowerNames } from "../patches/patch-encoder.ts";
import { patches, patchPlaces } from "../patches/patch-rotary.ts";
import { resizedPositions } from "../patches/resized-positions.ts";
import { squareRows } from "../patches/square-rows.ts";
import { rmsNorm } from "../rms-norm.ts";
import {
  buildEncoderLayers,
  clipLayers,
  flattenPictures,
  type LayerForm,
} from "../vision-transformer/encoder-layers.ts";
import type { HunYuanVisionConfig } from "./config.ts";

/** Of transformers, and of the checkpoints on the hub. */
export const towerNames: TowerNames = {
  prefixes: ["model.vision_tower.", "model.vit.", "vit."],
  convolution: "embeddings.patch_embedding",
};

const layers: LayerForm = { ...clipLayers, output: "o_proj" };
/** The names of layers on the hub. */
const olderLayers: LayerForm = {
  ...layers,
  firstNorm: "input_layernorm",
  secondNorm: "post_attention_layernorm",
  perceptron: ["dense_h_to_4h", "dense_4h_to_h"],
};

/** Builds the tower as described by `TowerBuilder`. */
export function buildVisionTower(
  context: GraphContext,
  config: HunYuanVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { graph, weights } = context;
  const { transformer, mergeSize, positionsPerSide: side } = config;
  const { hiddenSize: embedDim, numLayers } = transformer;
  const places = patchPlaces(context, { mergeSize, pixels, grid });
  const embedded = embedStillPatches(context, { ...config, embedDim }, `${prefix}${towerNames.convolution}`, pixels);
  const table = {
    name: `${prefix}embeddings.position_embedding.weight`,
    numOthers: 1,
    side,
    embedDim,
    alignsCorners: false,
  };
  const [states] = buildEncoderLayers(context, transformer, `${prefix}layers.`, {
    embedded: add(graph, "patches.placed", embedded, resizedPositions(context, table, { grid, ...places })),
    shape: [1, patches, embedDim],
    layers: [numLayers],
    form: weights.has(`${prefix}layers.0.layer_norm1.weight`) ? layers : olderLayers,
  });
  const hidden = flattenPictures(context, "states.flat", states!);
  return mergeSquares(context, config, prefix, { hidden, grid, outFeatures });
}

/**
 * [numPatches, embedDim] to [numEmbeddings, outFeatures]: two convolutions over squares, an embedding after each row, a
 * projection, and an embedding before and after all of them.
 */
function mergeSquares(
  context: GraphContext,
  { transformer, mergeSize, epsilon }: HunYuanVisionConfig,
  prefix: string,
  { hidden, grid, outFeatures }: Omit<TowerInputs, "pixels"> & { readonly hidden: Value },
): Value {
  const { graph, weights, precision } = context;
  const { hiddenSize: embedDim, activation } = transformer;
  const merger = `${prefix}patch_merger.`;
  const [name, first, second] = weights.has(`${merger}mlp.weight`)
    ? [merger, "proj_conv", "proj_out"]
    : [`${prefix}perceive.`, "proj.0", "proj.2"];
  const patchesPerSquare = mergeSize ** 2;
  const normalised = rmsNorm(context, `${name}before_rms`, hidden, { size: embedDim, epsilon });
  const rows = squareRows(context, normalised, { size: embedDim, patchesPerSquare });
  const width = 4 * embedDim;
  // Quantised weights are made from matrices, and these are a small part of the work.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const convolution = {
    name: `${name}${first}`,
    inFeatures: embedDim * patchesPerSquare,
    outFeatures: 2 * embedDim,
    hasBias: true,
    storedShape: [2 * embedDim, embedDim, mergeSize, mergeSize],
  };
  const merged = linear(context, rows, convolution, format);
  const activated = applyActivation(graph, `${name}activation`, merged, activation);
  const widening = {
    name: `${name}${second}`,
    inFeatures: 2 * embedDim,
    outFeatures: width,
    hasBias: true,
    storedShape: [width, 2 * embedDim, 1, 1],
  };
  const squares = linear(context, activated, widening, format);
  const withEnds = withRowEnds(context, `${name}image_newline`, { squares, grid, width, mergeSize });
  const projection = { name: `${name}mlp`, inFeatures: width, outFeatures, hasBias: true };
  const projected = linear(context, withEnds, projection, precision.vision);
  const [begin, end] = ["image_begin", "image_end"].map((part) =>
    reshapeTo(graph, `${name}${part}.row`, parameter(context, `${name}${part}`, [outFeatures]), [1, outFeatures]),
  );
  const all = concat(graph, `${name}with_ends`, [begin!, projected, end!], 0, "numEmbeddings");
  return rmsNorm(context, `${name}after_rms`, all, { size: outFeatures, epsilon });
}

/** [numSquares, width] with a learned row after each row of squares. */
function withRowEnds(
  context: GraphContext,
  newline: string,
  {
    squares,
    grid,
    width,
    mergeSize,
  }: {
    readonly squares: Value;
    readonly grid: Value;
    readonly width: number;
    readonly mergeSize: number;
  },
): Value {
  const { graph } = context;
  const flatGrid = reshapeTo(graph, "merger.grid", grid, [3]);
  const numPatchRows = slice(graph, "merger.patch_rows", flatGrid, { axis: 0, start: 1, end: 2 });
  const numRows = divide(graph, "merger.rows", numPatchRows, int64Vector(graph, mergeSize));
  const sizes = (name: string, rest: readonly number[]): Value =>
    concat(graph, name, [numRows, int64Vector(graph, ...rest)], 0);
  const lines = reshape(graph, "merger.lines", squares, sizes("merger.lines_shape", [-1, width]), [
    "numRows",
    "numColumns",
    width,
  ]);
  const one = reshapeTo(graph, `${newline}.point`, parameter(context, newline, [width]), [1, 1, width]);
  const ends = expand(graph, `${newline}.column`, one, sizes("merger.ends_shape", [1, width]), ["numRows", 1, width]);
  const whole = concat(graph, "merger.whole_lines", [lines, ends], 1, "numColumns + 1");
  return reshapeTo(graph, "merger.whole", whole, ["numLineEmbeddings", width]);
}
