/** Videos of Qwen3-VL and Qwen3.5: each pair of frames is an item, with its time before it. */
import type { VideoFile } from "../../multimodal/multimodal-processor.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { tenths } from "../../videos/timestamps.ts";
import type { PatchVideos } from "../qwen2-vl/video-inputs.ts";
import type { VideoOptions } from "../qwen2-vl/video-options.ts";
import { leastCap } from "../qwen2-vl/videos.ts";

const [start, videoToken, end] = ["<|vision_start|>", "<|video_pad|>", "<|vision_end|>"];

/**
 * Equals Hugging Face's Qwen3VLVideoProcessor and Qwen3VLProcessor. As in its first release and in vLLM, items take the
 * place of the markers around the placeholder, too, since each has markers of its own.
 */
export const qwen3VlVideos: PatchVideos = {
  placeholder: start + videoToken + end,
  token: videoToken,
  defaults: { size: { shortest_edge: 128 * 32 * 32, longest_edge: 768 * 32 * 32 } },
  limits: {
    countsVideo: true,
    capOf({ numFrames, squareSize, shortest, longest, maxVideoTokens = 768 }) {
      const share = Math.min(maxVideoTokens * squareSize * squareSize, Math.floor(longest / numFrames));
      return Math.max(share, leastCap(shortest)) * numFrames;
    },
  },
  sampleFrames: qwen3Frames,
  textOf: (items, imagePlaceholder) =>
    items.map((seconds) => `<${tenths(middle(seconds))} seconds>${start}${imagePlaceholder}${end}`).join(""),
};

function middle(seconds: readonly number[]): number {
  return (seconds[0]! + seconds.at(-1)!) / 2;
}

/** At equal distances, the first and the last among them. */
function qwen3Frames(
  { numFrames, framesPerSecond }: VideoFile,
  { fps = 2, num_frames: given, min_frames, max_frames }: VideoOptions,
  maxFrames: number,
): number[] {
  const ofRate = Math.max(Math.trunc((numFrames / framesPerSecond) * fps), min_frames);
  const count = Math.min(given ?? Math.min(ofRate, max_frames), maxFrames, numFrames);
  if (count === 1) return [0];
  const distance = (numFrames - 1) / (count - 1);
  return Array.from({ length: count }, (_, index) =>
    index === count - 1 ? numFrames - 1 : roundHalfToEven(index * distance),
  );
}
