/** Turns pictures into Pixtral's patches, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { patchTensors } from "../qwen2-vl/patch-values.ts";
import { parsePixtralImageOptions, pixtralGrid } from "./image-options.ts";

/** As described by `patchTensors`. */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parsePixtralImageOptions(options);
  const { rows, columns } = pixtralGrid(image, parsed);
  const size = { width: columns * parsed.squareSize, height: rows * parsed.squareSize };
  const picture = resample(image, { ...size, filter: parsed.resample });
  return patchTensors(picture, {
    patchSize: parsed.patch_size,
    mergeSize: parsed.spatial_merge_size,
    numTimes: 1,
    values: valuesOfBytes(parsed.scaling),
  });
};
