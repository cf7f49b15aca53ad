/** MiniCPM-V 4.6's videos: a frame of every second, each like a picture, behind the number of the video. */
import { z } from "zod";

import type { VideoFile, VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { integer, unsupportedOption } from "../../multimodal/processor-options.ts";
import { videoItemOptions } from "../../multimodal/video-options.ts";
import { ownSampling, parseSampling, placesBetween, samplingFields } from "../../videos/own-sampling.ts";
import type { VideoContext } from "../model-definition.ts";

export const videoToken = "<|video_pad|>";

const MAX_FRAMES = 128;
/** At which a longer video is looked at, before some of these frames are taken. */
const TICKS_PER_SECOND = 10;

const fields = samplingFields.extend({
  max_num_frames: integer(1, 2 ** 20).nullish(),
  stack_frames: z.int("an integer").nullish(),
  use_image_id: z.boolean("true or false").nullish(),
});

/** Equals Hugging Face's MiniCPMV4_6Processor for videos. */
export function createMiniCpmVVideos({
  imageToken,
  preprocessorConfig: images,
  videoPreprocessorConfig,
}: VideoContext): VideoInputs {
  const videos = videoPreprocessorConfig ?? images;
  const { max_num_frames, stack_frames } = parseSampling(fields, videos);
  const { use_image_id } = parseSampling(fields, images);
  return {
    placeholder: videoToken,
    placesVideosInText: true,
    framesPerItem: 1,
    sampleFrames: ownSampling((file) => {
      if ((stack_frames ?? 1) > 1) {
        throw unsupportedOption("stack_frames", `is ${stack_frames}; pictures of several frames are not supported`);
      }
      return [...new Set(framesBySecond(file, max_num_frames ?? MAX_FRAMES))];
    }),
    itemOptions(_, options, room) {
      const item = videoItemOptions(options, { images, videos });
      // A frame with slices has up to ten times the tokens of one without.
      return room === undefined ? item : { ...item, slice_mode: false };
    },
    ...((use_image_id ?? true) && { numberText: (index) => `<image_id>${index}</image_id>` }),
    textOf: ({ frameIndices: { length } }) => imageToken.repeat(length),
  };
}

/** One of every second; of a video with more seconds than `most`, as many at equal distances. May repeat frames. */
function framesBySecond({ numFrames, framesPerSecond, durationSeconds }: VideoFile, most: number): number[] {
  const at = (seconds: number): number => Math.min(Math.trunc(seconds * framesPerSecond), numFrames - 1);
  if (durationSeconds <= most) {
    return Array.from({ length: Math.max(Math.ceil(durationSeconds), 1) }, (_, second) => at(second));
  }
  const numTicks = Math.trunc(durationSeconds / (1 / TICKS_PER_SECOND));
  return placesBetween(0, numTicks - 1, Math.min(most, numTicks)).map((tick) => at(tick / TICKS_PER_SECOND));
}
