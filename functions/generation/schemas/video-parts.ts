/** Wire schemas of the parts of a message that are videos, in the forms that clients send. */
import { z } from "zod";

import { boundedList, finite, name } from "./wire-types.ts";

const urlRule = 'must be an object: {"url": …}';
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
  /** The client's own name for a video, which later requests can send instead of the video. */
  uuid: name.nullish(),
};

const videoUrlFields = { video_url: videoUrl.nullish(), ...videoOptions };

/** Null is allowed only with a uuid. */
function hasVideo(part: { readonly uuid?: unknown }, video: unknown): boolean {
  return (video ?? part.uuid ?? null) !== null;
}

function missing(key: string, rule: string): { path: string[]; message: string; abort: true } {
  return { path: [key], message: `${rule}; null is allowed only with a uuid`, abort: true };
}

/** Of OpenRouter, in responses with a string, in chat completions with an object. */
export const inputVideo = z
  .object({ type: z.literal("input_video"), ...videoUrlFields })
  .refine((part) => hasVideo(part, part.video_url), missing("video_url", urlRule));

export const videoParts = [
  z
    .object({ type: z.literal("video_url"), ...videoUrlFields })
    .refine((part) => hasVideo(part, part.video_url), missing("video_url", urlRule)),
  inputVideo,
  // Of Qwen's own tools and of Alibaba's service.
  z
    .object({
      type: z.literal("video"),
      video: z
        .union(
          [
            z.string(videoRule),
            boundedList(z.string("must be a string: a reference to a frame"), MAX_FRAMES, videoRule).min(
              1,
              "must contain at least one frame",
            ),
          ],
          videoRule,
        )
        .nullish(),
      ...videoOptions,
    })
    .refine((part) => hasVideo(part, part.video), missing("video", videoRule)),
] as const;

/** A part without a type is recognised by its key. */
export function withTypeOfVideo(part: object): object {
  if ("video_url" in part) return { ...part, type: "video_url" };
  return "video" in part ? { ...part, type: "video" } : part;
}
