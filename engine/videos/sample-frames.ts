/** Which frames of a video a prompt shows. */
import { EngineError } from "../contract/errors.ts";
import type { VideoSampling } from "../contract/generation-request.ts";
import type { VideoFile } from "../multimodal/multimodal-processor.ts";

/** @throws EngineError `invalid_argument` that names the field. */
export function checkSampling({ numFrames, framesPerSecond }: VideoSampling): void {
  const refusal = (name: string, problem: string): EngineError => {
    const parameter = `videoSampling.${name}`;
    return new EngineError("invalid_argument", `${parameter} ${problem}.`, { parameter });
  };
  if (numFrames !== undefined && !(Number.isInteger(numFrames) && numFrames >= 1)) {
    throw refusal("numFrames", `must be an integer of at least 1, got ${numFrames}`);
  }
  if (framesPerSecond === undefined) return;
  if (!(Number.isFinite(framesPerSecond) && framesPerSecond > 0)) {
    throw refusal("framesPerSecond", `must be a number above 0, got ${framesPerSecond}`);
  }
  if (numFrames !== undefined) throw refusal("framesPerSecond", "cannot be combined with numFrames; leave one out");
}

/**
 * `count` of the frames at equal distances, rounded down, the first and the last among them; all frames of a shorter
 * video.
 */
export function equallySpacedFrames(numFrames: number, count: number): number[] {
  if (count >= numFrames) return Array.from({ length: numFrames }, (_, index) => index);
  if (count === 1) return [0];
  return Array.from({ length: count }, (_, index) => Math.floor((index * (numFrames - 1)) / (count - 1)));
}

/** As vLLM samples for models without a video processor. At most `maxFrames`. */
export function sampleFrames(
  { numFrames, durationSeconds }: VideoFile,
  sampling: VideoSampling,
  { defaultCount, maxFrames }: { readonly defaultCount: number; readonly maxFrames: number },
): number[] {
  const { framesPerSecond } = sampling;
  const wanted =
    sampling.numFrames ??
    (framesPerSecond === undefined ? defaultCount : Math.max(Math.floor(durationSeconds * framesPerSecond), 1));
  return equallySpacedFrames(numFrames, Math.min(wanted, maxFrames));
}
