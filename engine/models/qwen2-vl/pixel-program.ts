/** Turns pictures into Qwen2-VL's patches, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { parseImageOptions, squareGrid } from "./image-options.ts";

/**
 * `pixel_values` float32 [numPatches, 3 * temporal * patch * patch]: squares row by row, the patches of each row by row,
 * a patch's planes of colour one after the other, each repeated for every picture in time; and `image_grid_thw` int64
 * [3]: 1, rows and columns of patches.
 */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parseImageOptions(options);
  const { patch_size: patchSize, temporal_patch_size: numTimes, merge_size: mergeSize, squareSize } = parsed;
  const { rows, columns } = squareGrid(image, parsed);
  const size = { width: columns * squareSize, height: rows * squareSize };
  const picture = resample(image, { ...size, filter: parsed.resample });
  const values = valuesOfBytes(parsed.scaling);
  const numPatches = rows * columns * mergeSize * mergeSize;
  const planeLength = patchSize * patchSize;
  const numFeatures = values.length * numTimes * planeLength;
  const pixelValues = new Float32Array(numPatches * numFeatures);
  let to = 0;
  for (let patch = 0; patch < numPatches; patch++) {
    const square = Math.floor(patch / (mergeSize * mergeSize));
    const inner = patch % (mergeSize * mergeSize);
    const top = Math.floor(square / columns) * squareSize + Math.floor(inner / mergeSize) * patchSize;
    const left = (square % columns) * squareSize + (inner % mergeSize) * patchSize;
    for (const [channel, valueOf] of values.entries()) {
      const plane = to;
      for (let row = top; row < top + patchSize; row++) {
        let from = (row * size.width + left) * 3 + channel;
        for (let column = 0; column < patchSize; column++) {
          pixelValues[to++] = valueOf[picture.data[from]!]!;
          from += 3;
        }
      }
      for (let time = 1; time < numTimes; time++) {
        pixelValues.copyWithin(to, plane, plane + planeLength);
        to += planeLength;
      }
    }
  }
  const grid = BigInt64Array.of(1n, BigInt(rows * mergeSize), BigInt(columns * mergeSize));
  return new Map([
    ["pixel_values", { elementType: "float32", shape: [numPatches, numFeatures], data: pixelValues }],
    ["image_grid_thw", { elementType: "int64", shape: [3], data: grid }],
  ]);
};
