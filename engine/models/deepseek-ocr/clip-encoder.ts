/** The second encoder of DeepSeek-OCR 1: CLIP's layers over SAM's features instead of patches. */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { concat, slice } from "../../graph/standard-ops.ts";
import type { Dimension, Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { resizeSquare } from "../sam/resized-tables.ts";
import { withClassToken } from "../vision-transformer/class-token.ts";
import { patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";
import { buildEncoderLayers, clipLayers, flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";

const form = { ...clipLayers, fusedProjection: "qkv_proj" };

/**
 * @param prefix Prefix of the encoder's tensors, e.g. "model.vision_model."
 * @param features float [pictures, side * side, hiddenSize], row by row.
 * @returns [pictures, side * side, 2 * hiddenSize]: the encoder's rows, and behind each the feature itself.
 */
export function encodeWithClip(context: GraphContext, config: VisionConfig, prefix: string, features: Value): Value {
  const { graph } = context;
  const { hiddenSize: width } = config;
  const [pictures, numRows] = features.shape as readonly [Dimension, number, number];
  const from = patchesPerSide(config);
  const tableName = `${prefix}embeddings.position_embedding.weight`;
  const table = parameter(context, tableName, [1 + from ** 2, width]);
  const ofPatches = slice(graph, `${tableName}.patches`, table, { axis: 0, start: 1 });
  const resized = resizeSquare(context, `${tableName}.of_view`, ofPatches, { from, to: Math.sqrt(numRows), width });
  const ofClass = slice(graph, `${tableName}.class`, table, { axis: 0, start: 0, end: 1 });
  const className = `${prefix}embeddings.class_embedding`;
  const tokens = withClassToken(context, features, {
    classToken: reshapeTo(graph, `${className}.row`, parameter(context, className, [width]), [1, 1, width]),
    positions: concat(graph, `${tableName}.joined`, [ofClass, resized], 0),
    pixels: features,
  });
  const [states] = buildEncoderLayers(context, config, `${prefix}transformer.layers.`, {
    // The checkpoint's spelling.
    embedded: layerNorm(context, config, `${prefix}pre_layrnorm`, flattenPictures(context, "clip.flat", tokens)),
    shape: [pictures, 1 + numRows, width],
    layers: [config.numLayers],
    form,
  });
  const ofFeatures = slice(graph, "clip.features", states!, { axis: 1, start: 1 });
  return concat(graph, "clip.with_features", [ofFeatures, features], 2);
}
