/** The rotary embedding of HunYuan's text models: queries and keys are rotated before their norms, by one position. */
import { rotaryEmbedding } from "../../graph/contrib-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import type { DecoderInputs } from "../decoder-graph/decoder-inputs.ts";
import { createRotary } from "../decoder-graph/rotary.ts";
import { tokens } from "../decoder-graph/sizes.ts";
import type { GraphContext } from "../graph-context.ts";
import type { RotateHeads } from "../llama/decoder-graph.ts";
import type { RopeConfig } from "../llama/rope.ts";

/** Equals `apply_rotary_pos_emb` of transformers' HunYuanDenseV1. */
export function createFirstRotary(
  context: GraphContext,
  inputs: DecoderInputs,
  { rope, headDim, maxModelLen }: { readonly rope: RopeConfig; readonly headDim: number; readonly maxModelLen: number },
): RotateHeads {
  const { graph } = context;
  const { tables } = createRotary(context, { rope, rotaryDim: headDim, maxModelLen, factor: 1 });
  const positions = reshapeTo(graph, "positions.batched", inputs.positions(), [1, tokens]);
  return (name, rows, numHeads) => {
    const width = numHeads * headDim;
    const input = reshapeTo(graph, `${name}.to_rotate`, rows, [1, tokens, width]);
    const rotated = rotaryEmbedding(graph, `${name}.rotated_first`, { input, positions, ...tables });
    return reshapeTo(graph, `${name}.rotated_first.flat`, rotated, [tokens, width]);
  };
}
