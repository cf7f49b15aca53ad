/** Puts the replies of a decoding process together, and believes none that goes beyond what was asked for. */
import { EngineError } from "../contract/errors.ts";
import type { VideoWorkLimits } from "./process-messages.ts";
import type { ReplyTaker } from "./reply-reader.ts";
import type { VideoFacts, VideoFrame } from "./video-facts.ts";
import type { VideoReply } from "./video-reply.ts";

export interface ResultTaker<Result> extends ReplyTaker {
  /** After the last reply. Throws EngineError if the process refused the video. */
  result(): Result;
}

export function collectFacts({ maxVideoPixels, maxNumFrames }: VideoWorkLimits): ResultTaker<VideoFacts> {
  let refusal: EngineError | null = null;
  let facts: VideoFacts | null = null;
  return {
    accept(reply) {
      if (reply.kind === "frame" || reply.kind === "done") throw new Error("frames instead of facts");
      if (reply.kind !== "facts") return;
      if (reply.width * reply.height > maxVideoPixels || reply.numFrames > maxNumFrames)
        throw new Error("beyond limits");
    },
    take(reply, payload) {
      if (reply.kind === "refused") refusal = refused(reply);
      if (reply.kind !== "facts") return;
      const { width, height, durationSeconds } = reply;
      const frameTimes = new Float64Array(payload.buffer);
      if (!areTimes(frameTimes)) throw new Error("frame times that do not ascend from 0");
      facts = { width, height, frameTimes, durationSeconds, fps: frameTimes.length / durationSeconds };
    },
    result() {
      if (facts === null) throw refusal ?? incomplete();
      return facts;
    },
  };
}

/** @param indices May repeat. */
export function collectFrames(
  indices: readonly number[],
  { maxVideoPixels, maxFrameBytes }: VideoWorkLimits,
): ResultTaker<readonly VideoFrame[]> {
  const missing = new Set(indices);
  const frames = new Map<number, VideoFrame>();
  let refusal: EngineError | null = null;
  let numBytes = 0;
  return {
    accept(reply) {
      if (reply.kind === "facts") throw new Error("facts instead of frames");
      if (reply.kind !== "frame") return;
      numBytes += reply.width * reply.height * 3;
      const isExpected = missing.delete(reply.index) && reply.width * reply.height <= maxVideoPixels;
      if (!isExpected || numBytes > maxFrameBytes) throw new Error("a frame that was not asked for");
    },
    take(reply, payload) {
      if (reply.kind === "refused") refusal = refused(reply);
      if (reply.kind !== "frame") return;
      const { index, width, height } = reply;
      frames.set(index, { index, width, height, data: payload });
    },
    result() {
      if (refusal !== null) throw refusal;
      return indices.map((index) => {
        const frame = frames.get(index);
        if (frame === undefined) throw incomplete();
        return frame;
      });
    },
  };
}

function areTimes(times: Float64Array): boolean {
  return times[0] === 0 && times.every((time, index) => Number.isFinite(time) && !(time < (times[index - 1] ?? 0)));
}

function refused({ code, message }: Extract<VideoReply, { readonly kind: "refused" }>): EngineError {
  return new EngineError(code, message);
}

function incomplete(): EngineError {
  return new EngineError("invalid_video", "The video could not be decoded.");
}
