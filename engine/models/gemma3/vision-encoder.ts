/** Gemma 3's pictures: SigLIP's last hidden state, averaged over squares of patches, normalised and projected. */
import { invariant } from "../../contract/errors.ts";
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { sumLast } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, gemm, layerNormalization, multiply, transpose } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, projectorContext, type GraphContext } from "../graph-context.ts";
import { projectorPrefixes, towerPrefixes } from "../llava/definition.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { createPictureEncoder } from "../vision-transformer/picture-encoder.ts";
import { shufflePixels } from "../vision-transformer/pixel-shuffle.ts";
import { findPrefix } from "../weight-source.ts";
import type { Gemma3Config } from "./config.ts";

export function gemma3VisionEncoder(config: Gemma3Config): VisionEncoderDefinition {
  return createPictureEncoder({
    ...config.vision,
    numImageTokens: config.tokensPerSide ** 2,
    hiddenSize: config.text.hiddenSize,
    hasProjector: true,
    embed: (context, pixels) =>
      project(context, config, pool(context, config, lastHiddenState(context, config, pixels))),
  });
}

/** [numImages, patches, hiddenSize]. */
function lastHiddenState(context: GraphContext, { vision }: Gemma3Config, pixels: Value): Value {
  const prefix = findPrefix(context.weights, towerPrefixes, "embeddings.patch_embedding.weight");
  const [state] = siglipTower.build(context, vision, prefix, pixels, [vision.numLayers]);
  invariant(state !== undefined, "the tower has a last layer");
  const name = `${prefix}post_layernorm`;
  return layerNormalization(context.graph, name, state, {
    weight: parameter(context, `${name}.weight`, [vision.hiddenSize]),
    bias: parameter(context, `${name}.bias`, [vision.hiddenSize]),
    epsilon: vision.layerNormEpsilon,
  });
}

/**
 * [numImages * tokensPerSide^2, hiddenSize], row by row: the mean of each square of patches. CUDA has no AveragePool for
 * bfloat16, so a sum in float32 computes it.
 */
function pool(context: GraphContext, { vision, tokensPerSide }: Gemma3Config, state: Value): Value {
  const { graph } = context;
  const side = patchesPerSide(vision);
  const { hiddenSize } = vision;
  const square = side / tokensPerSide;
  const exact = cast(graph, "pooling.exact", state, "float32");
  const squares = shufflePixels(context, exact, { side, square, hiddenSize });
  const rows = reshapeTo(graph, "pooling.rows", squares, ["numEmbeddings", square ** 2, hiddenSize]);
  const sums = sumLast(graph, "pooling.sums", transpose(graph, "pooling.patches_last", rows, [0, 2, 1]));
  const share = graph.constant("pooling.share", "float32", [], [1 / square ** 2]);
  return cast(graph, "pooling.pooled", multiply(graph, "pooling.means", sums, share), state.elementType);
}

/** [rows, width of the decoder]. */
function project(context: GraphContext, { vision, text }: Gemma3Config, pooled: Value): Value {
  const { context: own, input } = projectorContext(context, pooled);
  const { graph, weights, precision } = own;
  const prefix = findPrefix(weights, projectorPrefixes, "mm_soft_emb_norm.weight");
  const normName = `${prefix}mm_soft_emb_norm`;
  const one = graph.constant("norm.one", precision.activations, [1], [1]);
  const weight = add(graph, `${normName}.gain`, parameter(own, `${normName}.weight`, [vision.hiddenSize]), one);
  const epsilon = vision.layerNormEpsilon;
  const normalised = simplifiedLayerNormalization(graph, normName, { input, weight, epsilon });
  // Stored with the inputs first, unlike a linear layer.
  const weightName = `${prefix}mm_input_projection_weight`;
  const stored = parameter(own, weightName, [vision.hiddenSize, text.hiddenSize]);
  return gemm(graph, "projected", normalised, transpose(graph, `${weightName}.transposed`, stored, [1, 0]), null);
}
