/** From Gemma 4's patches to embeddings with a tower: the tower, means over squares of patches, and a norm. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { cast, meanOfAxis, multiply, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { findPrefix } from "../weight-source.ts";
import type { Gemma4Config, Gemma4VisionConfig } from "./config.ts";
import { createSquareEncoder, normaliseSquares, squares } from "./square-encoder.ts";
import { buildVisionTower } from "./vision-tower.ts";

const towerPrefixes = ["model.vision_tower.", "vision_tower."];

export function gemma4VisionEncoder({ vision, text }: Gemma4Config): VisionEncoderDefinition {
  return createSquareEncoder(vision, {
    embedSquares(context, inputs) {
      const prefix = findPrefix(context.weights, towerPrefixes, "patch_embedder.position_embedding_table");
      return poolSquares(context, vision, prefix, buildVisionTower(context, vision, prefix, inputs));
    },
    width: vision.hiddenSize,
    numPositions: vision.numPositions,
    hiddenSize: text.hiddenSize,
    projectorPrefixes: ["model.embed_vision.", "embed_vision."],
  });
}

/**
 * float32 [numSquares, hiddenSize]: the mean of each square's patches, scaled, standardised if the model does so, and
 * normalised. All of it is float32 as in transformers, because the scaled means exceed the range of float16.
 */
function poolSquares(
  context: GraphContext,
  { hiddenSize, poolingSize, standardizes, rmsNormEpsilon: epsilon }: Gemma4VisionConfig,
  prefix: string,
  hidden: Value,
): Value {
  const { graph } = context;
  const exact: GraphContext = { ...context, precision: { ...context.precision, activations: "float32" } };
  const patchesPerSquare = poolingSize ** 2;
  const rows = cast(graph, "pooling.float32", hidden, "float32");
  const bySquare = reshapeTo(graph, "pooling.squares", rows, [squares, patchesPerSquare, hiddenSize]);
  const means = meanOfAxis(graph, "pooling.means", bySquare, 1);
  const root = graph.constant("pooling.root", "float32", [1], [Math.sqrt(hiddenSize)]);
  const scaled = multiply(graph, "pooling.scaled", means, root);
  const bias = (): Value => parameter(exact, `${prefix}std_bias`, [hiddenSize]);
  const scale = (): Value => parameter(exact, `${prefix}std_scale`, [hiddenSize]);
  const standardised = standardizes
    ? multiply(graph, "pooling.standardised", subtract(graph, "pooling.shifted", scaled, bias()), scale())
    : scaled;
  return normaliseSquares(context, "pooling.normalised", standardised, { width: hiddenSize, epsilon });
}
