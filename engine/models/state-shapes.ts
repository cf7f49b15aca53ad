/** The states of recurrent layers as inputs and outputs of graphs. */
import type { RecurrentShape } from "./built-model.ts";

/** A state of one sequence. */
export interface StateShape {
  /** In the graph, without `past.` and `present.`. */
  readonly name: string;
  readonly elementType: NonNullable<RecurrentShape["inputType"]>;
  readonly shape: readonly number[];
}

export function stateShapes(recurrent: RecurrentShape): StateShape[] {
  const { numLayers, numChannels, kernelSize, matrices, inputType = "float32", isTransposed = false } = recurrent;
  const ordered = (outer: readonly number[], rows: number, columns: number): number[] =>
    isTransposed ? [...outer, columns, rows] : [...outer, rows, columns];
  return Array.from({ length: numLayers }, (_, layer) => layer).flatMap((layer): StateShape[] => {
    const shape = ordered([], kernelSize - 1, numChannels);
    const inputs = { name: `${layer}.convolution`, elementType: inputType, shape };
    if (matrices === null) return [inputs];
    const { numHeads, keyDim, valueDim } = matrices;
    return [inputs, { name: `${layer}.state`, elementType: "float32", shape: ordered([numHeads], keyDim, valueDim) }];
  });
}
