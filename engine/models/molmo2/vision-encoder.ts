/** Molmo 2's pictures: features of several layers of a tower, pooled by attention, among the embeddings of other tokens. */
import { multiHeadAttention } from "../../graph/contrib-ops.ts";
import { greaterOrEqual, maximum, sumLast, where } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, concat, divide, gatherRows, multiply, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import type { VisionEncoderInput } from "../built-model.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear, type LinearLayer } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { numPatches, patchesPerSide } from "../vision-transformer/config.ts";
import { buildEncoderLayers, flattenPictures, type LayerForm } from "../vision-transformer/encoder-layers.ts";
import type { Molmo2Config } from "./config.ts";
import { MOST_POOLED } from "./crops.ts";

const prefix = "model.vision_backbone.";
const tower = `${prefix}image_vit.`;

/** Table of the tokens behind the vocabulary. */
export const addedTable = "model.transformer.wte.new_embedding";

const towerLayers: LayerForm = {
  firstNorm: "attention_norm",
  attention: "attention",
  projections: ["wq", "wk", "wv"],
  output: "wo",
  secondNorm: "ffn_norm",
  hasQkvBias: true,
  perceptronPrefix: "feed_forward",
  perceptron: ["w1", "w2"],
};

/** A score of patches that are none. */
const LOWEST = -3e4;

/** The published processors' share of a crop that no other shows. */
const OWN_SHARE = 19 / 27;

export function molmo2VisionEncoder(config: Molmo2Config): VisionEncoderDefinition {
  const { vision, text } = config;
  const shape = [numPatches(vision), vision.patchSize ** 2 * vision.numChannels] as const;
  const inputs: readonly VisionEncoderInput[] = [
    { name: "pixel_values", elementType: "float32", shape: ["numCrops", ...shape] },
    { name: "pooled_patches", elementType: "int64", shape: ["numPooled", MOST_POOLED] },
    { name: "token_kinds", elementType: "int64", shape: ["numTokens"] },
    { name: "token_features", elementType: "int64", shape: ["numTokens"] },
  ];
  return {
    inputs,
    imageSize: vision.imageSize,
    numImageTokens: Math.ceil(patchesPerSide(vision) / 2) ** 2,
    refusesExports: "tokens of pictures have embeddings of their own, for which exports have no input",
    largestSizes(numTokens) {
      const ownPatches = Math.max(1, Math.floor(patchesPerSide(vision) * OWN_SHARE));
      const numCrops = 1 + Math.ceil(numTokens / (ownPatches / 2) ** 2);
      return new Map([
        ["numCrops", numCrops],
        ["numPooled", numTokens],
        ["numTokens", numTokens],
      ]);
    },
    build(context) {
      const { graph, precision } = context;
      const [pixels, patches, kinds, features] = inputs.map(({ name, elementType, shape: sizes }) => {
        const input = graph.input(name, elementType, [1, ...sizes]);
        return reshapeTo(graph, `${name}.item`, input, sizes);
      });
      const states = towerFeatures(context, config, cast(graph, "pixels", pixels!, precision.activations));
      const pooled = poolPatches(context, config, states, patches!);
      const embedded = amongTokens(context, config, project(context, config, pooled), kinds!, features!);
      const item = cast(graph, "tokens.cast", embedded, "float32");
      graph.output(reshapeTo(graph, "image_features", item, [1, "numTokens", text.hiddenSize]));
    },
  };
}

/** [numCrops * patches, layers * hiddenSize]: the outputs of the chosen layers, side by side. */
function towerFeatures(context: GraphContext, { vision, pooling }: Molmo2Config, pixels: Value): Value {
  const { graph, precision } = context;
  const { hiddenSize } = vision;
  const count = numPatches(vision);
  const inFeatures = vision.patchSize ** 2 * vision.numChannels;
  const rows = reshapeTo(graph, "patches.rows", pixels, ["numCrops * numPatches", inFeatures]);
  const layer = { name: `${tower}patch_embedding`, inFeatures, outFeatures: hiddenSize, hasBias: true };
  // Everything else is computed from pixels, and this is a small part of the work, so it is never quantised.
  const projected = linear(context, rows, layer, { kind: "plain", elementType: precision.activations });
  const byCrop = reshapeTo(graph, "patches.by_crop", projected, ["numCrops", count, hiddenSize]);
  const positions = parameter(context, `${tower}positional_embedding`, [count, hiddenSize]);
  const embedded = add(graph, "patches.embedded", byCrop, positions);
  const states = buildEncoderLayers(context, vision, `${tower}transformer.resblocks.`, {
    embedded: flattenPictures(context, "patches.embedded.flat", embedded),
    shape: ["numCrops", count, hiddenSize],
    layers: pooling.layers,
    form: towerLayers,
  });
  const flat = states.map((state, index) => flattenPictures(context, `features.${index}`, state));
  return flat.length === 1 ? flat[0]! : concat(graph, "features", flat, 1);
}

/**
 * [numPooled, hiddenSize]: of each window of patches, attention of their mean to them.
 *
 * @param windows int64 [numPooled, MOST_POOLED]: rows of `features`; -1 for none.
 */
function poolPatches(context: GraphContext, { pooling, vision }: Molmo2Config, features: Value, windows: Value): Value {
  const { graph, precision } = context;
  const name = `${prefix}image_pooling_2d`;
  const inFeatures = pooling.layers.length * vision.hiddenSize;
  const { hiddenSize, numHeads } = pooling;
  const none = int64Scalar(graph, 0);
  const isPatch = greaterOrEqual(graph, "windows.is_patch", windows, none);
  const gathered = gatherRows(graph, "windows.patches", features, maximum(graph, "windows.rows", windows, none));
  const weight = cast(graph, "windows.weight", isPatch, precision.activations);
  const column = reshapeTo(graph, "windows.weight.column", weight, ["numPooled", MOST_POOLED, 1]);
  const patches = multiply(graph, "windows.own_patches", gathered, column);
  // In float32, for which all devices have sums.
  const exact = cast(graph, "windows.exact", transpose(graph, "windows.patches_last", patches, [0, 2, 1]), "float32");
  const sums = sumLast(graph, "windows.sum", exact);
  const counts = sumLast(graph, "windows.count", cast(graph, "windows.counted", isPatch, "float32"));
  const means = divide(graph, "windows.mean", sums, reshapeTo(graph, "windows.count.column", counts, ["numPooled", 1]));
  const query = cast(graph, "windows.query", means, precision.activations);

  const project = (part: string, input: Value, layer: Omit<LinearLayer, "name" | "hasBias">): Value =>
    linear(context, input, { name: `${name}.w${part}`, hasBias: true, ...layer }, precision.vision);
  const flat = reshapeTo(graph, "windows.flat", patches, [`numPooled * ${MOST_POOLED}`, inFeatures]);
  const heads = { inFeatures, outFeatures: hiddenSize };
  const inWindows = (part: string): Value =>
    reshapeTo(graph, `${name}.${part}.windows`, project(part, flat, heads), ["numPooled", MOST_POOLED, hiddenSize]);
  const constant = (label: string, value: number): Value =>
    graph.constant(`windows.${label}`, precision.activations, [1, 1], [value]);
  const scores = where(graph, "windows.scores", {
    condition: isPatch,
    chosen: constant("own", 0),
    other: constant("none", LOWEST),
  });
  const attended = multiHeadAttention(graph, name, {
    query: reshapeTo(graph, `${name}.q.windows`, project("q", query, heads), ["numPooled", 1, hiddenSize]),
    key: inWindows("k"),
    value: inWindows("v"),
    numHeads,
    bias: reshapeTo(graph, "windows.bias", scores, ["numPooled", 1, 1, MOST_POOLED]),
  });
  const rows = reshapeTo(graph, `${name}.rows`, attended, ["numPooled", hiddenSize]);
  return project("o", rows, { inFeatures: hiddenSize, outFeatures: hiddenSize });
}

/** [numPooled, width of the decoder]. */
function project(context: GraphContext, { pooling, text }: Molmo2Config, pooled: Value): Value {
  const { graph, precision } = context;
  const name = `${prefix}image_projector`;
  const { hiddenSize, intermediateSize } = pooling;
  const layer = (part: string, input: Value, inFeatures: number, outFeatures: number): Value =>
    linear(context, input, { name: `${name}.${part}`, inFeatures, outFeatures, hasBias: false }, precision.vision);
  const gate = applyActivation(
    graph,
    `${name}.activation`,
    layer("w1", pooled, hiddenSize, intermediateSize),
    pooling.activation,
  );
  const gated = multiply(graph, `${name}.gated`, gate, layer("w3", pooled, hiddenSize, intermediateSize));
  return layer("w2", gated, intermediateSize, text.hiddenSize);
}

/** [numTokens, width of the decoder]: the tokens' own embeddings, to which those of patches add features. */
function amongTokens(
  context: GraphContext,
  { text, numAddedTokens, pictureTokenIds }: Molmo2Config,
  features: Value,
  kinds: Value,
  places: Value,
): Value {
  const { graph, precision } = context;
  const table = parameter(context, addedTable, [numAddedTokens, text.hiddenSize]);
  const rows = pictureTokenIds.map((id) => id - text.vocabSize);
  const ids = graph.constant("tokens.rows", "int64", [rows.length], rows);
  const own = gatherRows(graph, "tokens.own", gatherRows(graph, "tokens.table", table, ids), kinds);
  const zeros = Array.from({ length: text.hiddenSize }, () => 0);
  const none = graph.constant("tokens.no_features", precision.activations, [1, text.hiddenSize], zeros);
  const all = concat(graph, "tokens.all_features", [none, features], 0, "1 + numPooled");
  return add(graph, "tokens.embedded", own, gatherRows(graph, "tokens.features", all, places));
}
