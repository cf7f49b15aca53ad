/** SigLIP 2's tower over the patches of tiles of one size and of one picture behind them in its own shape (NaFlex). */
import { less, maximum, where } from "../../graph/selection-ops.ts";
import { int64Scalar, int64Vector, reshapeTo } from "../../graph/shape-ops.ts";
import { add, concat, gatherRows, modulo, multiply, range, shapeOf, subtract } from "../../graph/standard-ops.ts";
import type { Dimension, Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { patches } from "../patches/patch-rotary.ts";
import { byPixel } from "../patches/pixel-order.ts";
import { attendWithinCrops, firstRows } from "../vision-transformer/crop-attention.ts";
import { encoderLayer, layerNorm, type Attend } from "../vision-transformer/encoder-layers.ts";
import type { Siglip2Config } from "./config.ts";
import { interpolatedPositions, type ComputedGrid } from "./positions.ts";

/** Names of sizes: patches of one tile, of all tiles, of the picture behind them, and all without a stand-in. */
export const patchesPerTile = "patchesPerTile";
export const patchesOfTiles = "patchesOfTiles";
export const patchesOfPicture = "patchesOfPicture";
export const keptPatches = "keptPatches";

export interface Siglip2Inputs {
  /** float [numPatches, 3 * patchSize^2], channel by channel: of one or more tiles, and then of the picture. */
  readonly pixels: Value;
  /**
   * int64 [2, 2]: rows and columns of patches of a tile, and of the picture; zeros if there is no picture. One square of
   * patches stands for it then.
   */
  readonly shapes: Value;
  /** Side of the squares of patches by which patches are ordered in each tile and in the picture. */
  readonly mergeSize: number;
}

interface Places {
  readonly tile: ComputedGrid;
  readonly picture: ComputedGrid;
  /** int64 []: patches of all tiles. */
  readonly numInTiles: Value;
  readonly numPatches: Value;
  /** The same without those of a stand-in. */
  readonly numKept: Value;
}

/** Returns float [keptPatches, hiddenSize], after the last norm: the patches of a stand-in are left out. */
export function buildSiglip2Tower(
  context: GraphContext,
  config: Siglip2Config,
  prefix: string,
  inputs: Siglip2Inputs,
): Value {
  const places = placesOf(context, inputs);
  const attend = attendTilesAndPicture(context, config, places);
  let hidden = embedPatches(context, config, `${prefix}embeddings.`, inputs.pixels, places);
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = encoderLayer(context, config, `${prefix}encoder.layers.${layer}`, hidden, { attend });
  }
  const count = reshapeTo(context.graph, "patches.kept", places.numKept, [1]);
  const kept = firstRows(context, "states.kept", hidden, { count, size: keptPatches });
  return layerNorm(context, config, `${prefix}post_layernorm`, kept);
}

function placesOf(context: GraphContext, { pixels, shapes, mergeSize }: Siglip2Inputs): Places {
  const { graph } = context;
  const grid = (name: string, index: number, size: Dimension): ComputedGrid => {
    const sides = gatherRows(graph, `${name}.sides`, shapes, int64Scalar(graph, index));
    const rows = gatherRows(graph, `${name}.rows`, sides, int64Scalar(graph, 0));
    const columns = gatherRows(graph, `${name}.columns`, sides, int64Scalar(graph, 1));
    return { rows, columns, numPatches: multiply(graph, `${name}.size`, rows, columns), size, mergeSize };
  };
  const given = grid("picture", 1, patchesOfPicture);
  const orSquare = (name: string, length: Value): Value => maximum(graph, name, length, int64Scalar(graph, mergeSize));
  const rows = orSquare("picture.rows.computed", given.rows);
  const columns = orSquare("picture.columns.computed", given.columns);
  const picture = { ...given, rows, columns, numPatches: multiply(graph, "picture.size.computed", rows, columns) };
  const numPatches = gatherRows(
    graph,
    "patches.count",
    shapeOf(graph, "patches.shape", pixels, 1),
    int64Scalar(graph, 0),
  );
  const numInTiles = subtract(graph, "tiles.size", numPatches, picture.numPatches);
  return {
    tile: grid("tile", 0, patchesPerTile),
    picture,
    numInTiles,
    numPatches,
    numKept: add(graph, "patches.kept.count", numInTiles, given.numPatches),
  };
}

function embedPatches(
  context: GraphContext,
  { hiddenSize, patchSize, positionsPerSide }: Siglip2Config,
  prefix: string,
  pixels: Value,
  { tile, picture, numInTiles, numPatches }: Places,
): Value {
  const { graph, precision } = context;
  const inFeatures = 3 * patchSize ** 2;
  const layer = { name: `${prefix}patch_embedding`, inFeatures, outFeatures: hiddenSize, hasBias: true };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const embedded = linear(context, byPixel(context, { patchSize }, pixels), layer, format);

  const table = parameter(context, `${prefix}position_embedding.weight`, [positionsPerSide ** 2, hiddenSize]);
  const both = [
    interpolatedPositions(context, "positions.tile", table, tile),
    interpolatedPositions(context, "positions.picture", table, picture),
  ];
  const positions = concat(graph, "positions.both", both, 0, `${patchesPerTile} + ${patchesOfPicture}`);
  const index = range(graph, "patch.index", numPatches, patches);
  const row = where(graph, "positions.row", {
    condition: less(graph, "patch.is_in_tile", index, numInTiles),
    chosen: modulo(graph, "patch.in_tile", index, tile.numPatches),
    other: add(graph, "patch.behind_tile", subtract(graph, "patch.in_picture", index, numInTiles), tile.numPatches),
  });
  return add(graph, "embedded", embedded, gatherRows(graph, "positions.of_patches", positions, row));
}

/** Patches of a tile see each other, and so do those of the picture. */
function attendTilesAndPicture(context: GraphContext, config: Siglip2Config, { tile, numInTiles }: Places): Attend {
  const { graph } = context;
  const { hiddenSize } = config;
  const perTile = reshapeTo(graph, "tile.patches", tile.numPatches, [1]);
  const tiles = {
    name: "tiles",
    rows: patchesOfTiles,
    count: "numTiles",
    rowsOfEach: patchesPerTile,
    shape: concat(graph, "tiles.shape", [int64Vector(graph, -1), perTile, int64Vector(graph, hiddenSize)], 0),
  };
  const picture = {
    name: "picture",
    rows: patchesOfPicture,
    count: 1,
    rowsOfEach: patchesOfPicture,
    shape: int64Vector(graph, 1, -1, hiddenSize),
  };
  const numBefore = reshapeTo(graph, "picture.first", numInTiles, [1]);
  return attendWithinCrops(context, config, { rows: patches, numBefore, crops: [tiles, picture] });
}
