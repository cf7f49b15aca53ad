/** The video processors of the Qwen-VL family and of GLM: which frames a prompt shows, and how large they become. */
import { z } from "zod";

import type { ProcessorOptions, ShownVideo } from "../../multimodal/multimodal-processor.ts";
import { flag, integer, parseProcessorOptions } from "../../multimodal/processor-options.ts";
import { wholeTimes } from "../patches/square-grid.ts";
import { parseImageOptions, type Qwen2VlImageOptions } from "./image-options.ts";

const numFrames = integer(1, 2 ** 20);

const videoOptions = z.object({
  fps: z.number("a number above 0").positive("a number above 0").max(1000).optional(),
  num_frames: numFrames.optional(),
  min_frames: numFrames.default(4),
  max_frames: numFrames.default(768),
  /** Of a video that is sampled by `fps`, in seconds. */
  max_duration: z.number("a number above 0").positive("a number above 0").optional(),
  /** Whether a frame has at most its share of `max_video_tokens`. */
  cap_pixels_per_frame: flag.default(false),
  max_video_tokens: integer(1, 2 ** 28).optional(),
});

/** Fields that say nothing about a video that is decoded here. */
const otherFields: ReadonlySet<string> = new Set([
  "do_sample_frames",
  "max_image_size",
  "return_metadata",
  "video_backend",
  "video_metadata",
  "video_processor_type",
]);

export interface VideoOptions extends z.output<typeof videoOptions> {
  /** Size, values and patches of frames. */
  readonly frames: Qwen2VlImageOptions;
}

/**
 * Frames are resized like pictures, so the other options are theirs.
 *
 * @throws EngineError like `parseProcessorOptions`.
 */
export function parseVideoOptions(json: ProcessorOptions): VideoOptions {
  const given = Object.entries(json).filter(([name]) => !otherFields.has(name));
  const isOfVideos = ([name]: readonly [string, unknown]): boolean => Object.hasOwn(videoOptions.shape, name);
  return {
    ...parseProcessorOptions(videoOptions, Object.fromEntries(given.filter(isOfVideos))),
    frames: parseImageOptions(Object.fromEntries(given.filter((entry) => !isOfVideos(entry)))),
  };
}

/** How a family bounds the size of frames. */
export interface FrameLimits {
  /** Whether `size` counts the pixels of all frames of a video, not of each. */
  readonly countsVideo: boolean;
  /** Whether the repetitions of the last frame that fill an item count like others. Default false. */
  readonly countsRepetitions?: boolean;
  /** transformers' upper limit for `cap_pixels_per_frame`. */
  capOf(this: void, video: CappedVideo): number;
}

export interface CappedVideo {
  readonly numFrames: number;
  readonly squareSize: number;
  readonly shortest: number;
  readonly longest: number;
  readonly maxVideoTokens: number | undefined;
}

/** The least that a frame keeps where the prompt has no room for more, as in Qwen's own code. */
const MIN_TOKENS_PER_ITEM = 128;

/**
 * Options of the image processor for the frames of a video: transformers' `smart_resize` for videos. A frame has at most
 * the pixels of a picture, so that the largest picture is the largest item.
 *
 * @param pictures The checkpoint's options for pictures, with the request's changes.
 * @param room Tokens of an item for which the prompt has room.
 */
export function frameOptions(
  video: ShownVideo,
  pictures: ProcessorOptions,
  { frames, cap_pixels_per_frame: isCapped, max_video_tokens: maxVideoTokens }: VideoOptions,
  { countsVideo, countsRepetitions = false, capOf }: FrameLimits,
  room = Number.POSITIVE_INFINITY,
): ProcessorOptions {
  const { squareSize, temporal_patch_size: numTimes, minPixels, maxPixels } = frames;
  const shown = Math.max(countsRepetitions ? video.frameIndices.length : numShownFrames(video), numTimes);
  const counted = countsVideo ? shown : 1;
  const ofPictures = parseImageOptions(pictures);
  const capped = { numFrames: shown, squareSize, shortest: minPixels, longest: maxPixels, maxVideoTokens };
  const most = isCapped ? capOf(capped) : maxPixels;
  const area = squareSize ** 2;
  const mostOfFrame = Math.min(ofPictures.maxPixels, Math.max(room, MIN_TOKENS_PER_ITEM) * area);
  const bound = mostOfFrame * (countsVideo ? Math.min(shown, wholeTimes(shown, numTimes)) : 1);
  // Near the upper limit, a frame that is scaled up to the lower one could have more squares than any picture.
  const isFar = 2 * (minPixels / counted / area + 1) < mostOfFrame / area;
  const fewest = isFar ? minPixels : Math.min(minPixels, ofPictures.minPixels * counted);
  const longest = Math.floor(Math.min(most, bound));
  // Frames that are scaled up have to fit, too.
  const shortest = Math.ceil(Number.isFinite(room) ? Math.min(fewest, longest / 2) : fewest);
  return {
    ...pictures,
    min_pixels: null,
    max_pixels: null,
    size: { shortest_edge: shortest, longest_edge: longest },
    ...(countsVideo && { resizes_like: "glm", video_frames: shown }),
  };
}

/** Without the repetitions of the last frame that fill an item. */
export function numShownFrames({ frameIndices }: ShownVideo): number {
  return new Set(frameIndices).size;
}
