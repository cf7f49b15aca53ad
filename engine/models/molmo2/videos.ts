/** Molmo 2's videos: frames without crops, each after its time. */
import type { ProcessorOptions, VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { videoItemOptions } from "../../multimodal/video-options.ts";
import { ownSampling, parseSampling, samplingFields } from "../../videos/own-sampling.ts";
import { tenths } from "../../videos/timestamps.ts";
import { positiveNumber } from "../config-field.ts";
import type { VideoContext } from "../model-definition.ts";
import { cropFields } from "./crops.ts";

/** Of transformers' video processor. */
const NUM_FRAMES = 64;
const MAX_FPS = 2;
const defaults: ProcessorOptions = { pooling_size: [3, 3] };

const fields = samplingFields.extend({ max_fps: positiveNumber.nullish().transform((rate) => rate ?? MAX_FPS) });

/** Equals Hugging Face's Molmo2Processor for videos. */
export function createMolmo2Videos(
  { preprocessorConfig: images, videoPreprocessorConfig }: VideoContext,
  imagePlaceholder: string,
): VideoInputs {
  const given = { ...defaults, ...videoPreprocessorConfig };
  const { num_frames, fps, max_fps: maxRate } = parseSampling(fields, given);
  const videos = Object.fromEntries(Object.entries(given).filter(([name]) => cropFields.has(name)));
  return {
    placeholder: "<|video|>",
    followImages: "of-conversation",
    framesPerItem: 1,
    sampleFrames: ownSampling(({ numFrames, durationSeconds, framesPerSecond }, maxFrames) => {
      const atMost = framesPerSecond > maxRate ? Math.trunc(durationSeconds * maxRate) : Infinity;
      const wanted =
        num_frames == null && fps != null
          ? Math.trunc(durationSeconds * fps)
          : Math.min(num_frames ?? NUM_FRAMES, atMost);
      const distance = numFrames / Math.max(Math.min(wanted, numFrames, maxFrames), 1);
      // As in transformers, in float32.
      const at = (index: number): number => Math.min(Math.trunc(Math.fround(index * distance)), numFrames - 1);
      return [...new Set(Array.from({ length: Math.ceil(numFrames / distance) }, (_, index) => at(index)))];
    }),
    itemOptions: (_, options) => ({ ...videoItemOptions(options, { images, videos }), is_frame: true }),
    textOf: ({ frameIndices, framesPerSecond }) =>
      frameIndices.map((index) => `${tenths(index / framesPerSecond)} ${imagePlaceholder}`).join(" "),
  };
}
