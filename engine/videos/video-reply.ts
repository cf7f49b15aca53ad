/** Replies of the process that decodes, which its parent checks before it believes them. */
import { z } from "zod";

const count = z.int().nonnegative();
const size = { width: z.int().positive(), height: z.int().positive() };
const videoReply = z.discriminatedUnion("kind", [
  /** The process has read the work: from now on, its end may be the video's fault. */
  z.object({ kind: z.literal("started") }),
  /** Followed by the frame times, 8 bytes each, little-endian. */
  z.object({
    kind: z.literal("facts"),
    ...size,
    numFrames: z.int().positive(),
    durationSeconds: z.number().positive(),
  }),
  /** Followed by RGB of `width * height` pixels. */
  z.object({ kind: z.literal("frame"), index: count, ...size }),
  /** After all frames. */
  z.object({ kind: z.literal("done") }),
  /** Instead of all others but the first. */
  z.object({
    kind: z.literal("refused"),
    code: z.enum(["invalid_video", "video_too_large", "invalid_argument"]),
    message: z.string(),
  }),
]);

export type VideoReply = z.infer<typeof videoReply>;

/** Far more than any header of ours has. */
export const MAX_REPLY_HEADER_BYTES = 65_536;

/** Bytes after the header of a reply. */
export function payloadBytesOf(reply: VideoReply): number {
  switch (reply.kind) {
    case "facts":
      return reply.numFrames * Float64Array.BYTES_PER_ELEMENT;
    case "frame":
      return reply.width * reply.height * 3;
    case "started":
    case "done":
    case "refused":
      return 0;
    default:
      return reply satisfies never;
  }
}

/** Throws Error for anything else than the header of a reply. */
export function parseReply(header: Uint8Array): VideoReply {
  return videoReply.parse(JSON.parse(new TextDecoder().decode(header)));
}
