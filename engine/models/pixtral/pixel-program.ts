/** Turns pictures into Pixtral's patches, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { patchTensors } from "../patches/patch-values.ts";
import { parsePixtralImageOptions, patchGrid } from "./image-options.ts";

/** As described by `patchTensors`; row by row if sides are rounded to patches. */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parsePixtralImageOptions(options);
  const { rows, columns } = patchGrid(image, parsed);
  const { patch_size: patchSize } = parsed;
  const size = { width: columns * patchSize, height: rows * patchSize };
  return patchTensors(resample(image, { ...size, filter: parsed.resample }), {
    patchSize,
    mergeSize: parsed.rounds_to === "squares" ? parsed.spatial_merge_size : 1,
    numTimes: 1,
    values: valuesOfBytes(parsed.scaling),
  });
};
