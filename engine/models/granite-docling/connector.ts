/** Granite-Docling's connector: squares of patches become embeddings, with features for the decoder's first layers. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, concat, gelu, layerNormalization, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { shufflePixels } from "../vision-transformer/pixel-shuffle.ts";
import type { GraniteDoclingConfig } from "./config.ts";
import { columnsThenRows } from "./positions.ts";

/** PyTorch's default. */
const NORM_EPSILON = 1e-5;

const prefix = "model.vision_model.connector.";

export interface ConnectorPath {
  readonly name: "coarse" | "fine";
  /** Side of the squares of patches that become one embedding. */
  readonly square: number;
}

/** Rows of patches of the same tiles, [numTiles * numPatches, vision.hiddenSize] each. */
export interface TowerRows {
  /** The tower's last states, normalised. */
  readonly last: Value;
  /** States of `levelLayers`. */
  readonly levels: readonly Value[];
}

/** The norm of the tower's last states, which both paths share. */
export function connectorInput(context: GraphContext, { vision }: GraniteDoclingConfig, states: Value): Value {
  return norm(context, `${prefix}ln_in`, states, vision.hiddenSize);
}

/**
 * The part of the connector that differs between the paths: [numTiles * embeddings of a tile, (1 + number of levels) *
 * text.hiddenSize], tile after tile.
 */
export function pathFeatures(
  context: GraphContext,
  config: GraniteDoclingConfig,
  path: ConnectorPath,
  { last, levels }: TowerRows,
): Value {
  const { graph, precision } = context;
  const { hiddenSize: outFeatures } = config.text;
  const { hiddenSize } = config.vision;
  const side = patchesPerSide(config.vision);
  const { square } = path;
  const inFeatures = hiddenSize * square ** 2;
  const name = `${prefix}${path.name}`;
  const numEmbeddings = `${path.name}Embeddings`;
  const squaresOf = (part: string, rows: Value): Value =>
    shufflePixels(
      context,
      rows,
      { side, square, hiddenSize },
      { name: `${name}.${part}.shuffle`, rows: numEmbeddings },
    );
  const project = (input: Value, layer: string, features: number, hasBias: boolean): Value =>
    linear(context, input, { name: layer, inFeatures: features, outFeatures, hasBias }, precision.vision);

  const perSide = side / square;
  const projected = project(squaresOf("last", last), `${name}.projection`, inFeatures, false);
  const positions = graph.constant(
    `${name}.positions`,
    precision.activations,
    [perSide ** 2, outFeatures],
    columnsThenRows(perSide, outFeatures),
  );
  const byTile = reshapeTo(graph, `${name}.tiles`, projected, [`${path.name}Tiles`, perSide ** 2, outFeatures]);
  const placed = add(graph, `${name}.placed`, byTile, positions);
  const flat = reshapeTo(graph, `${name}.flat`, placed, [numEmbeddings, outFeatures]);
  const merged = levels.map((rows, level) => {
    const merger = `${name}.deepstack_mergers.${level}`;
    const normalised = norm(context, `${merger}.layer_norm`, squaresOf(`level.${level}`, rows), inFeatures);
    const first = project(normalised, `${merger}.linear_1`, inFeatures, true);
    return project(gelu(graph, `${merger}.activation`, first, "none"), `${merger}.linear_2`, outFeatures, true);
  });
  return merged.length === 0 ? flat : concat(graph, `${name}.levels`, [flat, ...merged], 1);
}

/** From the features of either path to embeddings of the same shape. */
export function connectorOutput(
  context: GraphContext,
  { text: { hiddenSize: size }, levelLayers }: GraniteDoclingConfig,
  features: Value,
): Value {
  const { graph, precision } = context;
  const sizes = [size, levelLayers.length * size] as const;
  const [first, levels] =
    levelLayers.length === 0 ? [features, null] : split(graph, `${prefix}parts`, features, { axis: 1, sizes });
  const middle = norm(context, `${prefix}ln_mid`, first, size);
  const activated = gelu(graph, `${prefix}activation`, middle, "none");
  const layer = { name: `${prefix}mlp_fc2`, inFeatures: size, outFeatures: size, hasBias: false };
  const embedded = norm(context, `${prefix}ln_out`, linear(context, activated, layer, precision.vision), size);
  return levels === null ? embedded : concat(graph, `${prefix}with_levels`, [embedded, levels], 1);
}

function norm(context: GraphContext, name: string, input: Value, size: number): Value {
  return layerNormalization(context.graph, name, input, {
    weight: parameter(context, `${name}.weight`, [size]),
    bias: parameter(context, `${name}.bias`, [size]),
    epsilon: NORM_EPSILON,
  });
}
