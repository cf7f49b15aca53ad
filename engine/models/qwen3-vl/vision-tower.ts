/** Qwen3-VL's vision tower: Qwen2-VL's with learned positions, and merged squares of several layers (DeepStack). */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, concat } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { patchBlock, patchNorm } from "../patches/patch-block.ts";
import { embedPatches } from "../patches/patch-embedding.ts";
import type { TowerInputs } from "../patches/patch-encoder.ts";
import { mergePatches } from "../patches/patch-merger.ts";
import { createPatchRotary } from "../patches/patch-rotary.ts";
import { resizedPositions } from "../patches/resized-positions.ts";
import type { Qwen3VlVisionConfig } from "./config.ts";

/** Of blocks and mergers. */
const perceptronLayers = ["linear_fc1", "linear_fc2"] as const;

/** Builds the tower as described by `TowerBuilder`; the levels follow the last layer's features. */
export function buildVisionTower(
  context: GraphContext,
  config: Qwen3VlVisionConfig,
  prefix: string,
  { pixels, grid, outFeatures }: TowerInputs,
): Value {
  const { graph } = context;
  const { embedDim, mergeSize } = config;
  const rotary = createPatchRotary(context, config, pixels, grid);
  const embedded = embedPatches(context, config, prefix, pixels, true);
  const table = { name: `${prefix}pos_embed.weight`, side: config.positionsPerSide, embedDim, alignsCorners: true };
  let hidden = add(graph, "patches.placed", embedded, resizedPositions(context, table, { grid, ...rotary }));
  const levels: Value[] = [];
  const squareWidth = embedDim * mergeSize * mergeSize;
  for (let layer = 0; layer < config.numLayers; layer++) {
    hidden = patchBlock(context, config, `${prefix}blocks.${layer}`, hidden, {
      attention: { rotary },
      perceptron: perceptronLayers,
    });
    if (!config.levelLayers.includes(layer)) continue;
    const name = `${prefix}deepstack_merger_list.${levels.length}`;
    // Here the norm is over whole squares.
    const squares = reshapeTo(graph, `${name}.whole`, hidden, ["numSquares", squareWidth]);
    const normalised = patchNorm(context, `${name}.norm`, squares, squareWidth);
    levels.push(mergePatches(context, config, name, normalised, outFeatures, perceptronLayers));
  }
  const normalised = patchNorm(context, `${prefix}merger.norm`, hidden, embedDim);
  const merged = mergePatches(context, config, `${prefix}merger`, normalised, outFeatures, perceptronLayers);
  return levels.length === 0 ? merged : concat(graph, "levels", [merged, ...levels], 1);
}
