/** Videos of Qwen2-VL and Qwen2.5-VL: two frames a second, each pair of them an item, all items without text between. */
import type { VideoFile } from "../../multimodal/multimodal-processor.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import type { PatchVideos } from "./video-inputs.ts";
import type { VideoOptions } from "./video-options.ts";

const videoToken = "<|video_pad|>";

/** What the models were trained with. transformers leaves the rate to the caller. */
const DEFAULT_FPS = 2;
/** Of the pixels of `max_video_tokens`, the share that a video may have. */
const CAPPED_SHARE = 0.9;

/** Equals Hugging Face's Qwen2VLVideoProcessor and Qwen2_5_VLProcessor. */
export const qwen2VlVideos: PatchVideos = {
  placeholder: videoToken,
  token: videoToken,
  defaults: { size: { shortest_edge: 128 * 28 * 28, longest_edge: 768 * 28 * 28 } },
  limits: {
    countsVideo: false,
    capOf({ numFrames, squareSize, shortest, longest, maxVideoTokens = 128_000 }) {
      const numPixels = Math.trunc(maxVideoTokens * squareSize * squareSize * CAPPED_SHARE);
      const share = Math.floor((2 * numPixels) / numFrames);
      return Math.max(Math.min(longest, share), leastCap(shortest));
    },
  },
  sampleFrames: qwen2Frames,
  textOf: (items, imagePlaceholder) => imagePlaceholder.repeat(items.length),
};

/** The least pixels that a cap leaves to a frame. */
export function leastCap(shortest: number): number {
  return Math.trunc(shortest * 1.05);
}

/** At equal distances from the first, as many as a whole number of items takes. */
function qwen2Frames(
  { numFrames, framesPerSecond }: VideoFile,
  { fps = DEFAULT_FPS, num_frames: given, min_frames, max_frames, frames }: VideoOptions,
  maxFrames: number,
): number[] {
  const { temporal_patch_size: numTimes } = frames;
  const whole = (count: number): number => Math.floor(count / numTimes) * numTimes;
  const most = whole(Math.min(given === undefined ? max_frames : numFrames, maxFrames, numFrames));
  const wanted =
    given === undefined
      ? Math.max((numFrames / framesPerSecond) * fps, min_frames)
      : roundHalfToEven(given / numTimes) * numTimes;
  const count = Math.max(whole(Math.min(wanted, most)), 1);
  const distance = numFrames / count;
  return Array.from({ length: count }, (_, index) => Math.trunc(Math.fround(index * distance)));
}
