/** LLaVA-OneVision's videos: frames of one tile with a quarter of its embeddings, and one embedding at the end of all. */
import type { VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { videoItemOptions } from "../../multimodal/video-options.ts";
import { firstOfParts, ownSampling, parseSampling, samplingFields } from "../../videos/own-sampling.ts";
import type { VideoContext } from "../model-definition.ts";

/** Equals Hugging Face's LlavaOnevisionProcessor for videos. */
export function createOneVisionVideos({
  imageToken,
  preprocessorConfig: images,
  videoPreprocessorConfig,
}: VideoContext): VideoInputs {
  const videos = videoPreprocessorConfig ?? images;
  const { num_frames, fps } = parseSampling(samplingFields, videos);
  return {
    placeholder: "<video>",
    followImages: "of-message",
    framesPerItem: 1,
    sampleFrames: ownSampling(({ numFrames, framesPerSecond }, maxFrames) => {
      const count = num_frames ?? (fps == null ? null : Math.max(Math.trunc((numFrames / framesPerSecond) * fps), 1));
      return count === null ? null : firstOfParts(numFrames, Math.min(count, maxFrames));
    }),
    itemOptions: (_, options) => ({ ...videoItemOptions(options, { images, videos }), video_frame: "inner" }),
    lastItemOptions: (options) => ({ ...options, video_frame: "last" }),
    textOf: ({ frameIndices: { length } }) => imageToken.repeat(length),
  };
}
