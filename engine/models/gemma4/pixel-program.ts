/** Turns pictures into Gemma 4's patches, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { patchTensors } from "../patches/patch-values.ts";
import { gemma4Grid, parseGemma4ImageOptions } from "./image-options.ts";

/** As described by `patchTensors`. */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parseGemma4ImageOptions(options);
  const { rows, columns } = gemma4Grid(image, parsed);
  const size = { width: columns * parsed.squareSize, height: rows * parsed.squareSize };
  const picture = resample(image, { ...size, filter: parsed.resample });
  return patchTensors(picture, {
    patchSize: parsed.patch_size,
    mergeSize: parsed.pooling_kernel_size,
    numTimes: 1,
    values: valuesOfBytes(parsed.scaling),
  });
};
