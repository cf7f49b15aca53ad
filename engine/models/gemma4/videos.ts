/** Gemma 4's videos: frames with fewer embeddings than pictures, each after the time at which it is shown. */
import type { ProcessorOptions, VideoInputs } from "../../multimodal/multimodal-processor.ts";
import { videoItemOptions } from "../../multimodal/video-options.ts";
import { firstOfParts, ownSampling, parseSampling, samplingFields } from "../../videos/own-sampling.ts";
import { minutesAndSeconds } from "../../videos/timestamps.ts";
import type { VideoContext } from "../model-definition.ts";

export const videoToken = "<|video|>";

const NUM_FRAMES = 32;
/** Of transformers' video processor. */
const defaults: ProcessorOptions = { max_soft_tokens: 70 };

/** Equals Hugging Face's Gemma4Processor and Gemma4UnifiedProcessor for videos. */
export function createGemma4Videos({
  imageToken,
  preprocessorConfig: images,
  videoPreprocessorConfig,
}: VideoContext): VideoInputs {
  const videos = { ...defaults, ...videoPreprocessorConfig };
  const { num_frames, fps } = parseSampling(samplingFields, videos);
  return {
    placeholder: videoToken,
    framesPerItem: 1,
    sampleFrames: ownSampling(({ numFrames, durationSeconds }, maxFrames) => {
      const count = num_frames ?? (fps == null ? NUM_FRAMES : Math.max(Math.trunc(durationSeconds * fps), 1));
      return firstOfParts(numFrames, Math.min(count, maxFrames));
    }),
    itemOptions: (_, options) => videoItemOptions(options, { images, videos }),
    textOf: ({ frameSeconds }) =>
      frameSeconds.map((seconds) => `${minutesAndSeconds(seconds)} ${imageToken}`).join(" "),
  };
}
