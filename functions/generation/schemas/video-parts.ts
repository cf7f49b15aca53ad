/** Wire schemas of the parts of a message that are videos, in the forms that clients send. */
import { z } from "zod";

import { finite, name } from "./wire-types.ts";

/** vLLM's form for frames that a client has decoded itself: JPEG files in base64, separated by commas. */
const framesOfClient = /^data:video\/jpe?g[;,]/i;

function fileReference(rule: string) {
  return z.string(rule).refine((reference) => !framesOfClient.test(reference), {
    error: "has frames as JPEG pictures, which are not supported; send the video's file, or each frame as an image_url",
    abort: true,
  });
}

const urlRule = 'must be an object: {"url": …}; a uuid alone is not enough for a video';
const videoUrl = z.union(
  [fileReference(urlRule).transform((url) => ({ url })), z.object({ url: fileReference("must be a string") }, urlRule)],
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
  // Of Qwen's own tools and of Alibaba's service, which also take a list of frames.
  z.object({
    type: z.literal("video"),
    video: fileReference(
      'must be a string: a reference to the video\'s file; send frames as parts {"type": "image_url", "image_url": …}',
    ),
    ...videoOptions,
  }),
] as const;

/** A part without a type is recognised by its key. */
export function withTypeOfVideo(part: object): object {
  if ("video_url" in part) return { ...part, type: "video_url" };
  return "video" in part ? { ...part, type: "video" } : part;
}
