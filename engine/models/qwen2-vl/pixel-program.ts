/** Turns pictures and frames of videos into Qwen2-VL's patches, on the threads that decode pictures. */
import type { PixelProgram, RgbImage } from "../../multimodal/pixel-program.ts";
import { patchTensors } from "../patches/patch-values.ts";
import { parseImageOptions, squareGrid } from "./image-options.ts";

/** As described by `patchTensors`. */
export const toTensors: PixelProgram = (image, options, { resample, valuesOfBytes }) => {
  const parsed = parseImageOptions(options);
  const { rows, columns } = squareGrid(image, parsed);
  const size = { width: columns * parsed.squareSize, height: rows * parsed.squareSize };
  const resized = (picture: RgbImage): RgbImage => resample(picture, { ...size, filter: parsed.resample });
  const further = (image.further ?? []).map(resized);
  return patchTensors(
    { ...resized(image), further },
    {
      patchSize: parsed.patch_size,
      mergeSize: parsed.merge_size,
      numTimes: parsed.temporal_patch_size,
      values: valuesOfBytes(parsed.scaling),
    },
  );
};
