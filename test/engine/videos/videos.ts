/** The videos that test/fixtures/videos/record.sh made, with what ffmpeg finds in them. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import type { VideoDecoder, VideoFrame } from "../../../engine/videos/video-decoder.ts";

const folder = new URL("../../fixtures/videos/", import.meta.url);

export interface RecordedVideo {
  /** As coded, before rotation. */
  readonly width: number;
  readonly height: number;
  /** In seconds, of each frame in the order in which ffmpeg returns them; null where it knows none. */
  readonly times: readonly (number | null)[];
  /** MD5 of each frame as RGB, as shown. */
  readonly hashes: readonly string[];
}

export const recordedVideos: Readonly<Record<string, RecordedVideo>> = JSON.parse(
  readFileSync(new URL("frames.json", folder), "utf8"),
);

export const never: AbortSignal = new AbortController().signal;

export function readVideo(name: string): Buffer {
  return readFileSync(new URL(name, folder));
}

export function hashOf(frame: VideoFrame): string {
  return createHash("md5").update(frame.data).digest("hex");
}

/** The indices 0 to `length` - 1. */
export function upTo(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}

/** All frames of a video. */
export async function decodeAll(decoder: VideoDecoder, bytes: Uint8Array): Promise<readonly VideoFrame[]> {
  const { frameTimes } = await decoder.readFacts({ bytes }, never);
  return decoder.decodeFrames({ bytes }, upTo(frameTimes.length), never);
}
