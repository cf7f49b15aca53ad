/** Wire schemas of the parts of a message that are videos, in the forms that clients send. */
import { z } from "zod";

import { boundedList, finite, name } from "./wire-types.ts";

const urlRule = 'must be an object: {"url": …}; a uuid alone is not enough for a video';
const videoRule = "must be a string: a reference to the video's file; or a list of references to its frames";
/** More than any context has room for. */
const MAX_FRAMES = 65_536;
const videoUrl = z.union(
  [z.string(urlRule).transform((url) => ({ url })), z.object({ url: z.string("must be a string") }, urlRule)],
  urlRule,
);

const videoOptions = {
  /** Alibaba's, as in `media_io_kwargs`. */
  fps: finite.nullish(),
  /** vLLM's name for a cached video. Here a video is known by its bytes, so that it cannot replace them. */
  uuid: name.nullish(),
};

/** Of OpenRouter, in responses with a string, in chat completions with an object. */
export const inputVideo = z.object({ type: z.literal("input_video"), video_url: videoUrl, ...videoOptions });

export const videoParts = [
  z.object({ type: z.literal("video_url"), video_url: videoUrl, ...videoOptions }),
  inputVideo,
  // Of Qwen's own tools and of Alibaba's service.
  z.object({
    type: z.literal("video"),
    video: z.union(
      [
        z.string(videoRule),
        boundedList(z.string("must be a string: a reference to a frame"), MAX_FRAMES, videoRule).min(
          1,
          "must contain at least one frame",
        ),
      ],
      videoRule,
    ),
    ...videoOptions,
  }),
] as const;

/** A part without a type is recognised by its key. */
export function withTypeOfVideo(part: object): object {
  if ("video_url" in part) return { ...part, type: "video_url" };
  return "video" in part ? { ...part, type: "video" } : part;
}
