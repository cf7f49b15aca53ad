/** InternVL's videos: numbered frames of one tile each. */
import { z } from "zod";

import type { VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { videoItemOptions } from "../../multimodal/video-options.ts";
import { ownSampling, parseSampling, samplingFields } from "../../videos/own-sampling.ts";
import type { VideoContext } from "../model-definition.ts";

const fields = samplingFields.extend({
  initial_shift: z
    .union([z.boolean(), z.number().min(0)], "true, false or a number of frames")
    .nullish()
    .transform((shift) => shift ?? true),
});

/** Equals Hugging Face's InternVLProcessor for videos. */
export function createInternVideos({
  imageToken,
  preprocessorConfig: images,
  videoPreprocessorConfig,
}: VideoContext): VideoInputs {
  const videos = videoPreprocessorConfig ?? images;
  const { num_frames, fps, initial_shift } = parseSampling(fields, videos);
  return {
    placeholder: "<video>",
    framesPerItem: 1,
    sampleFrames: ownSampling(({ numFrames, framesPerSecond }, maxFrames) => {
      const wanted = num_frames ?? (fps == null ? null : Math.trunc((numFrames / framesPerSecond) * fps));
      if (wanted === null) return null;
      const count = Math.min(Math.max(wanted, 1), numFrames, maxFrames);
      const distance = numFrames / count;
      // From the middle of the first part on, unless the checkpoint says where.
      const start = initial_shift === true ? distance / 2 : Math.min(Number(initial_shift), numFrames - 1);
      const length = Math.ceil((numFrames - start) / distance);
      // As in transformers, in float32.
      const at = (index: number): number => Math.min(Math.trunc(Math.fround(start + index * distance)), numFrames - 1);
      return [...new Set(Array.from({ length }, (_, index) => at(index)))];
    }),
    itemOptions: (_, options) => ({ ...videoItemOptions(options, { images, videos }), crop_to_patches: false }),
    textOf: ({ frameIndices }) => frameIndices.map((_, index) => `Frame${index + 1}: ${imageToken}`).join("\n"),
  };
}
