/**
 * Embeddings that each layer of Gemma 4 has of its own. A token has one row for all layers in a table of its own, which
 * is larger than the rest of the decoder; each layer adds its part of the row to the residual stream through a gate.
 */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { equal, where } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { add, multiply, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation } from "../activation.ts";
import { tokens } from "../decoder-graph/sizes.ts";
import { embeddingRows } from "../decoder-graph/vocabulary.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { Gemma4TextConfig } from "./text-config.ts";

/** int64 [N]: pictures, videos and sounds have the embeddings of the padding token. */
export function withoutMedia(
  { graph }: GraphContext,
  tokenIds: Value,
  mediaTokenIds: readonly number[],
  padTokenId: number,
): Value {
  return mediaTokenIds.reduce((ids, mediaTokenId) => {
    const name = `input_ids.without.${mediaTokenId}`;
    const condition = equal(graph, `${name}.is_media`, tokenIds, int64Scalar(graph, mediaTokenId));
    return where(graph, name, { condition, chosen: int64Scalar(graph, padTokenId), other: ids });
  }, tokenIds);
}

/**
 * By layer, [N, size]: the mean of the token's row and of a projection of its embedding, both scaled. Null without such
 * embeddings.
 */
export function layerEmbeddings(
  context: GraphContext,
  { layerEmbeddings: table, layers, hiddenSize, rmsNormEpsilon: epsilon }: Gemma4TextConfig,
  prefix: string,
  { tokenIds, embedded }: { readonly tokenIds: Value; readonly embedded: Value },
): readonly Value[] | null {
  if (table === null) return null;
  const { graph, precision } = context;
  const { vocabSize, size } = table;
  const width = layers.length * size;
  const scaled = (name: string, rows: Value, factor: number): Value =>
    multiply(graph, name, rows, graph.constant(`${name}.factor`, precision.activations, [1], [factor]));
  const ofTokens = embeddingRows(context, "layer_embedded", tokenIds, {
    name: "layer_embedding_table",
    tableName: `${prefix}embed_tokens_per_layer.weight`,
    shape: [vocabSize, width],
    factor: Math.sqrt(size),
  });
  const projection = { name: `${prefix}per_layer_model_projection`, inFeatures: hiddenSize, outFeatures: width };
  const projected = linear(context, embedded, { ...projection, hasBias: false }, precision.linear);
  const projectedRows = scaled("layer_projected", projected, hiddenSize ** -0.5);
  const normName = `${prefix}per_layer_projection_norm`;
  const parts = reshapeTo(graph, `${normName}.parts`, projectedRows, ["N * numLayers", size]);
  const weight = parameter(context, `${normName}.weight`, [size]);
  const normalised = simplifiedLayerNormalization(graph, normName, { input: parts, weight, epsilon });
  const ofContext = reshapeTo(graph, `${normName}.rows`, normalised, [tokens, width]);
  const both = scaled("layer_embeddings", add(graph, "layer_embeddings.sum", ofContext, ofTokens), 2 ** -0.5);
  return split(graph, "layer_embeddings.split", both, { axis: 1, sizes: layers.map(() => size) });
}

/** The residual stream after a layer, before its scale: with the perceptron's output and the layer's own embedding. */
export function addLayerEmbedding(
  context: GraphContext,
  { hiddenSize, activation, rmsNormEpsilon: epsilon }: Gemma4TextConfig,
  name: string,
  {
    output,
    residual,
    ownEmbedding,
  }: { readonly output: Value; readonly residual: Value; readonly ownEmbedding: Value | null },
): Value {
  const { graph, precision } = context;
  const hidden = add(graph, `${name}.after_mlp`, residual, output);
  if (ownEmbedding === null) return hidden;
  const size = Number(ownEmbedding.shape[1]);
  const gateLayer = { name: `${name}.per_layer_input_gate`, inFeatures: hiddenSize, outFeatures: size, hasBias: false };
  const gate = linear(context, hidden, gateLayer, precision.linear);
  const activated = applyActivation(graph, `${name}.per_layer_input_gate.act`, gate, activation);
  const gated = multiply(graph, `${name}.per_layer_input.gated`, activated, ownEmbedding);
  const layer = { name: `${name}.per_layer_projection`, inFeatures: size, outFeatures: hiddenSize, hasBias: false };
  const projected = linear(context, gated, layer, precision.linear);
  const shape = { size: hiddenSize, epsilon };
  const normalised = rmsNorm(context, `${name}.post_per_layer_input_norm`, projected, shape);
  return add(graph, `${name}.with_own_embedding`, hidden, normalised);
}
