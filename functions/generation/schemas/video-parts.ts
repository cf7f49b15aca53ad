/** Wire schemas of the parts of a message that are videos, in the forms that clients send. */
import { z } from "zod";

import { boundedList, finite, name, text } from "./wire-types.ts";

/** Far more than any server shows. The engine checks its own limit. */
const MAX_FRAMES = 65_536;

const urlRule = 'must be an object: {"url": …}; a uuid alone is not enough for a video';
const videoUrl = z.union([z.string(urlRule).transform((url) => ({ url })), z.object({ url: text }, urlRule)], urlRule);

const frameHeader = /^data:image\/[a-z]+;base64,/i;
const frameRule =
  'must be a data URL: data:image/jpeg;base64,…; send frames that have addresses as parts {"image_url": …}';
/** Frames, to vLLM's form of a video that is sent as its frames. */
const frames = boundedList(
  z.string(frameRule).regex(frameHeader, { error: frameRule, abort: true }),
  MAX_FRAMES,
  "must be a string, or a list of frames",
)
  .min(1, "must contain at least one frame")
  .transform((list) => `data:video/jpeg;base64,${list.map((frame) => frame.replace(frameHeader, "")).join(",")}`);

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
    video: z.union([text, frames], "must be a string, or a list of frames"),
    ...videoOptions,
  }),
] as const;

/** A part without a type is recognised by its key. */
export function withTypeOfVideo(part: object): object {
  if ("video_url" in part) return { ...part, type: "video_url" };
  return "video" in part ? { ...part, type: "video" } : part;
}
