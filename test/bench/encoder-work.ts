/** How many operations a vision tower needs for a picture: its products of matrices, and those of attention. */

export interface TowerWork {
  readonly numLayers: number;
  readonly width: number;
  readonly intermediate: number;
  /** 3 for gated perceptrons, otherwise 2. */
  readonly perceptronMatrices: 2 | 3;
  /** Numbers of `pixel_values` that become one sequence, and its patches; null: the whole picture is one sequence. */
  readonly tile: { readonly numPixelValues: number; readonly numPatches: number } | null;
  /** Numbers of `pixel_values` of one patch, if the whole picture is one sequence. */
  readonly patchValues: number;
  /** Layers whose attention is divided into windows, and the patches of a window. */
  readonly windows: { readonly numLayers: number; readonly numPatches: number } | null;
}

/** Additions and multiplications, without the embedding of patches and the projector. */
export function numTowerOperations(work: TowerWork, numPixelValues: number): number {
  const { numLayers, width, intermediate, perceptronMatrices, tile, patchValues, windows } = work;
  const numSequences = tile === null ? 1 : Math.round(numPixelValues / tile.numPixelValues);
  const numPatches = tile === null ? numPixelValues / patchValues : tile.numPatches;
  const weightsPerLayer = 4 * width ** 2 + perceptronMatrices * width * intermediate;
  const attentionOver = (numSeen: number): number => 4 * numPatches * Math.min(numSeen, numPatches) * width;
  const numWindowLayers = windows?.numLayers ?? 0;
  const attention =
    (numLayers - numWindowLayers) * attentionOver(numPatches) +
    numWindowLayers * attentionOver(windows?.numPatches ?? 0);
  return numSequences * (2 * numLayers * weightsPerLayer * numPatches + attention);
}
