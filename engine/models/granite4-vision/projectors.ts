/** Granite 4 Vision's projectors: queries of a Q-Former for each window of patches, from their means or from corners. */
import { sumLast } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, gatherColumns, layerNormalization, multiply, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { attendToStates } from "../blip2/q-former.ts";
import { parameter, projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { joinRows } from "../sam/picture-rows.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import type { FeatureLevel, Granite4VisionConfig } from "./config.ts";

/** transformers' norm before the windows. */
const NORM_EPSILON = 1e-6;

/**
 * One level of features.
 *
 * @param prefix Of the projectors.
 * @param states [tiles, patches, vision.hiddenSize].
 * @returns [tiles * featuresPerSide ** 2, text.hiddenSize], each tile row by row.
 */
export function projectLevel(
  context: GraphContext,
  config: Granite4VisionConfig,
  prefix: string,
  { level, states }: { readonly level: FeatureLevel; readonly states: Value },
): Value {
  const { graph } = context;
  const { querySide, windowSide, featuresPerSide } = config;
  const { hiddenSize } = config.vision;
  const name = `${prefix}${level.projector}`;
  const normalised = layerNormalization(graph, `${name}norm`, states, {
    weight: parameter(context, `${name}norm.weight`, [hiddenSize]),
    bias: parameter(context, `${name}norm.bias`, [hiddenSize]),
    epsilon: NORM_EPSILON,
  });
  const side = patchesPerSide(config.vision);
  const windows = inWindows(context, `${name}windows`, normalised, { side, windowSide });
  const positions = parameter(context, `${name}image_positions`, [1, windowSide ** 2, hiddenSize]);
  const halved = halve(context, name, normalised, config, level.corner);
  const places = inWindows(context, `${name}queries.windows`, halved, { side: featuresPerSide, windowSide: querySide });
  const query = parameter(context, `${name}query`, [1, querySide ** 2, hiddenSize]);
  const attended = attendToStates(
    context,
    config.qFormer,
    `${name}qformer.`,
    add(graph, `${name}queries`, places, query),
    add(graph, `${name}windows.placed`, windows, positions),
  );
  const { context: own, input } = projectorContext(context, attended);
  const { hiddenSize: outFeatures } = config.text;
  const layer = { name: `${name}out_linear`, inFeatures: hiddenSize, outFeatures, hasBias: true };
  const projected = linear(own, input, layer, own.precision.vision);
  const byTile = reshapeTo(graph, `${name}tiles`, projected, [states.shape[0]!, featuresPerSide ** 2, outFeatures]);
  const rasterOrder = graph.constant(
    "features.raster_order",
    "int32",
    [featuresPerSide ** 2],
    inverse(windowOrder(featuresPerSide, querySide)),
  );
  return joinRows(context, `${name}features`, gatherColumns(graph, `${name}raster`, byTile, rasterOrder));
}

/** [tiles, side ** 2, width], row by row, as [windows of all tiles, windowSide ** 2, width]. */
function inWindows(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  { side, windowSide }: { readonly side: number; readonly windowSide: number },
): Value {
  const order = graph.constant(
    `window_order.${side}.${windowSide}`,
    "int32",
    [side ** 2],
    windowOrder(side, windowSide),
  );
  const ordered = gatherColumns(graph, `${name}.ordered`, rows, order);
  return reshapeTo(graph, name, ordered, ["numWindows", windowSide ** 2, Number(rows.shape[2])]);
}

/** The places of a square, window after window; each place by its index row by row. */
function windowOrder(side: number, windowSide: number): number[] {
  const perSide = side / windowSide;
  return Array.from({ length: side ** 2 }, (_, index) => {
    const [window, place] = [Math.floor(index / windowSide ** 2), index % windowSide ** 2];
    const row = Math.floor(window / perSide) * windowSide + Math.floor(place / windowSide);
    return row * side + (window % perSide) * windowSide + (place % windowSide);
  });
}

function inverse(order: readonly number[]): number[] {
  const places: number[] = Array.from({ length: order.length });
  for (const [place, index] of order.entries()) places[index] = place;
  return places;
}

/** One of each 2 x 2 patches, or their mean: [tiles, featuresPerSide ** 2, width], row by row. */
function halve(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  { featuresPerSide }: Granite4VisionConfig,
  corner: FeatureLevel["corner"],
): Value {
  const side = 2 * featuresPerSide;
  const width = Number(rows.shape[2]);
  const taken =
    corner === null
      ? ([
          [0, 0],
          [0, 1],
          [1, 0],
          [1, 1],
        ] as const)
      : [corner];
  const indices = Array.from({ length: featuresPerSide ** 2 }, (_, index) => {
    const [row, column] = [Math.floor(index / featuresPerSide), index % featuresPerSide];
    return taken.map(([down, right]) => (2 * row + down) * side + 2 * column + right);
  }).flat();
  const key = corner === null ? "squares" : `corners.${corner.join(".")}`;
  const order = graph.constant(key, "int32", [indices.length], indices);
  const gathered = gatherColumns(graph, `${name}halved`, rows, order);
  if (corner !== null) return gathered;
  const squares = reshapeTo(graph, `${name}squares`, gathered, ["numSquares", taken.length, width]);
  const exact = cast(
    graph,
    `${name}squares.exact`,
    transpose(graph, `${name}squares.last`, squares, [0, 2, 1]),
    "float32",
  );
  const share = graph.constant("squares.share", "float32", [], [1 / taken.length]);
  const means = multiply(graph, `${name}means`, sumLast(graph, `${name}sums`, exact), share);
  return reshapeTo(graph, `${name}means.tiles`, cast(graph, `${name}means.cast`, means, rows.elementType), [
    rows.shape[0]!,
    featuresPerSide ** 2,
    width,
  ]);
}
