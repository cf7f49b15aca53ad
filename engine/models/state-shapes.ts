/** The states of recurrent layers as inputs and outputs of graphs. */
import type { RecurrentShape } from "./built-model.ts";

/** Shapes of one sequence's states by their names in the graph, without `past.` and `present.`. */
export function stateShapes({
  numLayers,
  numChannels,
  kernelSize,
  matrices,
}: RecurrentShape): [name: string, shape: readonly number[]][] {
  return Array.from({ length: numLayers }, (_, layer) => layer).flatMap((layer) => {
    const inputs: [string, readonly number[]] = [`${layer}.convolution`, [kernelSize - 1, numChannels]];
    if (matrices === null) return [inputs];
    return [inputs, [`${layer}.state`, [matrices.numHeads, matrices.keyDim, matrices.valueDim]]];
  });
}
