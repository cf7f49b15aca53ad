/** SmolVLM's videos: an introduction, and frames of one tile each after the time at which they are shown. */
import { z } from "zod";

import type { VideoFile, VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { videoItemOptions } from "../../multimodal/video-options.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { numberWords } from "../../videos/number-words.ts";
import { ownSampling, parseSampling, placesBetween, samplingFields } from "../../videos/own-sampling.ts";
import { hoursMinutesAndSeconds, minutesAndSeconds } from "../../videos/timestamps.ts";
import type { VideoContext } from "../model-definition.ts";

const { num_frames: frameCount, fps: frameRate } = samplingFields.shape;
const fields = samplingFields.extend({
  video_sampling: z.looseObject({ max_frames: frameCount, fps: frameRate }).nullish(),
});

/** At the beginning and the end of a long video, which its frames leave out. */
const SKIPPED_SECONDS = 1;

/** Equals Hugging Face's SmolVLMProcessor for videos. */
export function createSmolVlmVideos({
  imageToken,
  preprocessorConfig: images,
  videoPreprocessorConfig,
}: VideoContext): VideoInputs {
  const videos = videoPreprocessorConfig ?? images;
  const { num_frames, fps, video_sampling } = parseSampling(fields, videos);
  const rate = video_sampling?.fps ?? fps;
  const most = video_sampling?.max_frames ?? num_frames;
  return {
    placeholder: "<video>",
    // The templates on the hub are older than transformers' support for videos, which replaces them.
    placesVideosInText: true,
    framesPerItem: 1,
    sampleFrames: ownSampling((file, maxFrames) =>
      rate == null || most == null ? null : framesBetween(file, rate, Math.min(most, maxFrames)),
    ),
    itemOptions: (_, options) => ({ ...videoItemOptions(options, { images, videos }), do_image_splitting: false }),
    textOf({ frameSeconds, durationSeconds }) {
      const count = numberWords(frameSeconds.length);
      const duration = hoursMinutesAndSeconds(durationSeconds);
      const frames = frameSeconds.map((seconds) => `\nFrame from ${minutesAndSeconds(seconds)}:${imageToken}`);
      return `You are provided the following series of ${count} frames from a ${duration} [H:MM:SS] video.\n${frames.join("")}\n\n`;
    },
  };
}

/** At most `most` frames at equal distances, `rate` per second. */
function framesBetween(
  { numFrames, framesPerSecond, durationSeconds }: VideoFile,
  rate: number,
  most: number,
): number[] {
  const count = Math.max(Math.min(roundHalfToEven(rate * durationSeconds), most), 1);
  const isLong = durationSeconds - 2 * SKIPPED_SECONDS > most * rate;
  const skipped = SKIPPED_SECONDS * framesPerSecond;
  const [first, last] = isLong ? [Math.trunc(skipped), Math.trunc(numFrames - skipped)] : [0, numFrames - 1];
  const end = Math.min(last, numFrames - 1);
  return [...new Set(first < end ? placesBetween(first, end, count) : placesBetween(0, numFrames - 1, count))];
}
