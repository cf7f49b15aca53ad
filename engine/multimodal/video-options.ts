/** Options of the image processor for the items of videos. */
import type { CanonicalValue } from "./hasher.ts";
import type { ProcessorOptions } from "./multimodal-processor.ts";

/** Fields of a video processor that choose frames or describe them: the items do not depend on these. */
const fieldsOfVideos: ReadonlySet<string> = new Set([
  "do_sample_frames",
  "fps",
  "initial_shift",
  "max_duration",
  "max_frames",
  "max_num_frames",
  "min_frames",
  "num_frames",
  "return_metadata",
  "stack_frames",
  "video_metadata",
  "video_processor_type",
]);

/**
 * The options of the checkpoint's video processor, with what a request changes; those of images where both are silent.
 *
 * @param options Of images, with the request's changes.
 * @param images Of images, as in the checkpoint.
 * @param videos As in the checkpoint.
 */
export function videoItemOptions(
  options: ProcessorOptions,
  { images, videos }: { readonly images: ProcessorOptions; readonly videos: ProcessorOptions },
): ProcessorOptions {
  const isOfItem = ([name]: readonly [string, CanonicalValue]): boolean => !fieldsOfVideos.has(name);
  const changes = Object.entries(options).filter(([name, value]) => value !== images[name]);
  return Object.fromEntries([...Object.entries(images), ...Object.entries(videos).filter(isOfItem), ...changes]);
}
