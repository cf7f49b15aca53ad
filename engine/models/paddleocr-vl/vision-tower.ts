/** PaddleOCR-VL's vision tower: SigLIP's layers over patches that are rotated by their place, and merged squares. */
import { add } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { embedStillPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs, TowerNames } from "../patches/patch-encoder.ts";
import { mergePatches } from "../patches/patch-merger.ts";
import { createPatchRotary, patches } from "../patches/patch-rotary.ts";
import { resizedPositions } from "../patches/resized-positions.ts";
import { buildEncoderLayers, flattenPictures, layerNorm } from "../vision-transformer/encoder-layers.ts";
import { findPrefix } from "../weight-source.ts";
import type { PaddleOcrVisionConfig } from "./config.ts";

/** Of transformers, and of the checkpoints on the hub. */
export const towerNames: TowerNames = {
  prefixes: ["model.visual.vision_model.", "visual.vision_model."],
  convolution: "embeddings.patch_embedding",
};
const projectorPrefixes = ["model.projector.", "mlp_AR."];

/** PyTorch's default. */
const PROJECTOR_NORM_EPSILON = 1e-5;

/** Builds the tower as described by `TowerBuilder`. */
export function buildVisionTower(
  context: GraphContext,
  config: PaddleOcrVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { graph, weights } = context;
  const { transformer, embedDim, numLayers, positionsPerSide: side } = config;
  const rotary = createPatchRotary(context, config, pixels, grid);
  const embedded = embedStillPatches(context, config, `${prefix}${towerNames.convolution}`, pixels);
  const table = { name: `${prefix}embeddings.position_embedding.weight`, side, embedDim, alignsCorners: false };
  const [states] = buildEncoderLayers(context, transformer, `${prefix}encoder.layers.`, {
    embedded: add(graph, "patches.placed", embedded, resizedPositions(context, table, { grid, ...rotary })),
    shape: [1, patches, embedDim],
    layers: [numLayers],
    rotary,
  });
  const hidden = flattenPictures(context, "states.flat", states!);
  const encoded = layerNorm(context, transformer, `${prefix}post_layernorm`, hidden);
  const projector = findPrefix(weights, projectorPrefixes, "linear_1.weight");
  const norm = { ...transformer, layerNormEpsilon: PROJECTOR_NORM_EPSILON };
  const normalised = layerNorm(context, norm, `${projector}pre_norm`, encoded);
  return mergePatches(context, config, projector.slice(0, -1), normalised, outFeatures, ["linear_1", "linear_2"]);
}
