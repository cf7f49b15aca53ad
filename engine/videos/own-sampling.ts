/** Sampling of models whose video processor has a rule of its own. */
import { z } from "zod";

import type { ProcessorOptions, VideoFile, VideoInputs } from "../multimodal/multimodal-processor.ts";
import { integer, invalidOption } from "../multimodal/processor-options.ts";
import { readBySchema } from "../schema-problem.ts";
import { equallySpacedFrames } from "./sample-frames.ts";

const frameRate = z.number("a number above 0").positive("a number above 0").finite("a number above 0");
const frameCount = integer(1, 2 ** 20);

/** Fields of a video processor that choose frames. */
export const samplingFields = z.looseObject({ num_frames: frameCount.nullish(), fps: frameRate.nullish() });

/** Throws EngineError `invalid_checkpoint` that names the field. */
export function parseSampling<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape, z.core.$loose>,
  options: ProcessorOptions,
): z.output<z.ZodObject<Shape, z.core.$loose>> {
  const result = readBySchema(schema, options);
  if (result.isValid) return result.value;
  throw invalidOption(result.path, result.problem);
}

/**
 * For requests that do not say which frames to show.
 *
 * @param choose Ascending frames of a file; null for those of models without a rule. If there are more than `maxFrames`,
 * some at equal distances are left.
 */
export function ownSampling(
  choose: (file: VideoFile, maxFrames: number) => readonly number[] | null,
): VideoInputs["sampleFrames"] {
  return (file, { numFrames, framesPerSecond }, maxFrames) => {
    if (numFrames !== undefined || framesPerSecond !== undefined) return null;
    const chosen = choose(file, maxFrames);
    return chosen && atMost(chosen, maxFrames);
  };
}

/** Some of the frames at equal distances, if there are more than `maxFrames`. */
export function atMost(frames: readonly number[], maxFrames: number): readonly number[] {
  if (frames.length <= maxFrames) return frames;
  return equallySpacedFrames(frames.length, maxFrames).map((index) => frames[index]!);
}

/** The first frame of each of `count` equal parts, as transformers samples by default; all frames of a shorter video. */
export function firstOfParts(numFrames: number, count: number): number[] {
  const parts = Math.min(count, numFrames);
  return Array.from({ length: parts }, (_, part) => Math.floor((part * numFrames) / parts));
}

/** NumPy's `linspace` in whole numbers: `count` places from `first` to `last`, both among them, rounded down. */
export function placesBetween(first: number, last: number, count: number): number[] {
  const step = count > 1 ? (last - first) / (count - 1) : 0;
  return Array.from({ length: count }, (_, index) => {
    if (index > 0 && index === count - 1) return last;
    return Math.floor(first + index * step);
  });
}
