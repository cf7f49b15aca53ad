/** Videos of GLM-4.1V, GLM-4.5V and GLM-4.6V: each two frames become one picture, followed by the time of the first. */
import type { ProcessorOptions, VideoFile } from "../../multimodal/multimodal-processor.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { atMost, placesBetween } from "../../videos/own-sampling.ts";
import { tenths } from "../../videos/timestamps.ts";
import type { VideoContext } from "../model-definition.ts";
import type { PatchVideos } from "../qwen2-vl/video-inputs.ts";
import type { VideoOptions } from "../qwen2-vl/video-options.ts";

const FRAMES_PER_ITEM = 2;
const [start, imageToken, end] = ["<|begin_of_image|>", "<|image|>", "<|end_of_image|>"];

/** The differences between the two processors. */
interface Processor {
  sampleFrames(this: void, file: VideoFile, options: VideoOptions): readonly number[];
  spell(this: void, seconds: number): string;
}

const glm4v: Processor = { sampleFrames: framesOfGlm4v, spell: (seconds) => `${Math.trunc(seconds)}` };
const glm46V: Processor = { sampleFrames: framesOfGlm46V, spell: (seconds) => `${tenths(seconds)} seconds` };

/** Equals Hugging Face's Glm4vProcessor or Glm46VProcessor for videos, whichever the checkpoint names. */
export function glmVideosOf({ preprocessorConfig, videoPreprocessorConfig }: VideoContext): PatchVideos {
  const { sampleFrames, spell } = isNewer(videoPreprocessorConfig ?? preprocessorConfig) ? glm46V : glm4v;
  return {
    placeholder: "<|video|>",
    token: imageToken,
    defaults: { size: { shortest_edge: 112 * 112, longest_edge: 28 * 28 * 2 * 30_000 } },
    limits: { countsVideo: true, countsRepetitions: true, capOf: ({ longest }) => longest },
    sampleFrames: (file, options, maxFrames) => atMost([...new Set(sampleFrames(file, options))], maxFrames),
    textOf: (items, imagePlaceholder) =>
      items.map(([seconds = 0]) => start + imagePlaceholder + end + spell(seconds)).join(""),
  };
}

function isNewer({ video_processor_type: type, processor_class: processor }: ProcessorOptions): boolean {
  return [type, processor].some((name) => typeof name === "string" && name.startsWith("Glm46V"));
}

const FRAMES_PER_SECOND = 2;
const MAX_SECONDS = 300;

/** A fixed number of frames per second, or as many at equal distances as `max_duration` has. May repeat frames. */
function framesOfGlm4v(
  file: VideoFile,
  { fps: rate = FRAMES_PER_SECOND, max_duration: mostSeconds = MAX_SECONDS }: VideoOptions,
): number[] {
  const { numFrames, framesPerSecond } = file;
  const duration = secondsOf(file);
  const at = (seconds: number): number => Math.min(numFrames - 1, Math.ceil(seconds * framesPerSecond));
  if (duration <= mostSeconds) {
    const count = Math.max(Math.floor(duration * rate), 1);
    return Array.from({ length: count }, (_, index) =>
      Math.min(numFrames - 1, Math.ceil((index * framesPerSecond) / rate)),
    );
  }
  const count = Math.trunc(mostSeconds * rate);
  if (count >= numFrames) return Array.from(Array(numFrames).keys());
  return Array.from({ length: count }, (_, index) => at(count > 1 ? (index * duration) / (count - 1) : 0));
}

/** The longest duration in seconds and its frames per second, before frames are joined. */
const ratesOfGlm46V = [
  { upToSeconds: 30, rate: 3 },
  { upToSeconds: 300, rate: 1 },
  { upToSeconds: 2400, rate: 0.5 },
] as const;
const MAX_FRAMES = 640;

/** Fewer frames per second the longer the video is. May repeat frames. */
function framesOfGlm46V(file: VideoFile): number[] {
  const { numFrames, framesPerSecond } = file;
  const duration = secondsOf(file);
  const seconds = Math.min(duration, ratesOfGlm46V.at(-1)!.upToSeconds);
  const { rate } = ratesOfGlm46V.find(({ upToSeconds }) => seconds <= upToSeconds)!;
  const count = Math.min(Math.trunc(seconds * rate * FRAMES_PER_ITEM), MAX_FRAMES);
  if (numFrames < count) return placesBetween(0, numFrames - 1, count);
  const chosen: number[] = [];
  const step = 1 / (FRAMES_PER_ITEM * rate);
  let next = 0;
  for (let index = 0; index < numFrames; index++) {
    if (index * (1 / framesPerSecond) < next) continue;
    next += step;
    chosen.push(index);
    if (next >= Math.trunc(duration)) break;
  }
  if (chosen.length < count) return placesBetween(chosen[0]!, chosen.at(-1)!, count);
  return chosen.length > count ? placesBetween(0, numFrames - 1, count) : chosen;
}

function secondsOf({ durationSeconds, numFrames, framesPerSecond }: VideoFile): number {
  return durationSeconds > 0 ? durationSeconds : roundHalfToEven((numFrames - 1) / framesPerSecond) + 1;
}
