/** Turns pictures into Fuyu's patches, on the pixel threads. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { fuyuPatchGrid, fuyuResizedSize, parseFuyuImageOptions } from "./image-options.ts";

/**
 * `image_patches` float32 [numPatches, patchSize * patchSize * 3]: patches row by row, their pixels row by row, the
 * colours of a pixel side by side. Bit-identical to Hugging Face's Fuyu processor in its Pillow form, which pads before
 * it rescales.
 */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const plan = parseFuyuImageOptions(options);
  const { numColumns, numRows } = fuyuPatchGrid(image, plan);
  const { patch_size: patchShape, padding_value: padding } = plan;
  const patchSize = patchShape.width;
  const resized = resample(image, { ...fuyuResizedSize(image, plan), filter: plan.resample });
  const values = valuesOfBytes(plan.scaling);
  const patches = new Float32Array(numRows * numColumns * patchSize * patchSize * 3);
  let at = 0;
  for (let patch = 0; patch < numRows * numColumns; patch += 1) {
    const top = Math.floor(patch / numColumns) * patchSize;
    const left = (patch % numColumns) * patchSize;
    for (let row = top; row < top + patchSize; row += 1) {
      for (let column = left; column < left + patchSize; column += 1) {
        const isInside = row < resized.height && column < resized.width;
        const pixel = (row * resized.width + column) * 3;
        for (let channel = 0; channel < 3; channel += 1) {
          patches[at] = values[channel]![isInside ? resized.data[pixel + channel]! : padding]!;
          at += 1;
        }
      }
    }
  }
  const shape = [numRows * numColumns, patchSize * patchSize * 3];
  return new Map([["image_patches", { elementType: "float32", shape, data: patches }]]);
};
