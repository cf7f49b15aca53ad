/** Settings of videos: their limits. `LIMIT_MM_PER_PROMPT` and the sources are those of images. */
import { defaultVideoLimits } from "../../engine/contract/default-limits.ts";
import { mediaIoOptions } from "./json-values.ts";
import { setting } from "./setting.ts";
import { bytes, integer, MEBIBYTE, seconds } from "./values.ts";

/** More frames than any context has room for. */
const MAX_FRAMES = 65_536;

export const videoSamplingSetting = setting(
  "MEDIA_IO_KWARGS",
  mediaIoOptions(),
  'Which frames of a video requests show that do not say: {"video": {"num_frames": 16}}, -1 for all, or {"video": {"fps": 1}}; default: those of the checkpoint, or VIDEO_NUM_FRAMES.',
  { default: "{}" },
);

export const videoLimitSettings = {
  maxVideoBytes: setting("MAX_VIDEO_BYTES", bytes(1024, 1024 * MEBIBYTE), "Largest encoded video in bytes.", {
    default: `${defaultVideoLimits.maxVideoBytes / MEBIBYTE}MiB`,
  }),
  maxVideoFrames: setting(
    "MAX_VIDEO_FRAMES",
    integer(1, MAX_FRAMES, "frames"),
    "Largest number of frames of a video that the model sees, whatever a request or the checkpoint asks for.",
    { default: defaultVideoLimits.maxVideoFrames },
  ),
  numFrames: setting(
    "VIDEO_NUM_FRAMES",
    integer(1, MAX_FRAMES, "frames"),
    "Number of frames of a video for checkpoints without a video processor, if the request does not say.",
    { default: defaultVideoLimits.numFrames },
  ),
  fetchTimeoutMs: setting(
    "VIDEO_FETCH_TIMEOUT_SECONDS",
    seconds(0.1, 600),
    "Timeout for fetching one video, redirects included.",
    { default: defaultVideoLimits.fetchTimeoutMs / 1000 },
  ),
  videoDecodeTimeoutMs: setting(
    "VIDEO_DECODE_TIMEOUT_SECONDS",
    seconds(0.1, 600),
    "Timeout for reading a video, and for decoding its frames.",
    { default: defaultVideoLimits.videoDecodeTimeoutMs / 1000 },
  ),
};
