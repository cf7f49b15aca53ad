/**
 * Messages between the service and the process that decodes. Each is the length of its header (4 bytes, little-endian),
 * the header as JSON, and as many bytes as the header says.
 */
import type { VideoReply } from "./video-reply.ts";

/** Limits that hold for one video. */
export interface VideoWorkLimits {
  readonly maxVideoPixels: number;
  readonly maxNumFrames: number;
  readonly maxFrameBytes: number;
  readonly numThreads: number;
}

/** Followed by the encoded video, `numBytes` long. */
export interface VideoWork {
  /** Ascending and distinct; null for the facts. */
  readonly indices: readonly number[] | null;
  readonly numBytes: number;
  readonly limits: VideoWorkLimits;
}

export function encodeHeader(header: VideoWork | VideoReply): Uint8Array {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const message = new Uint8Array(4 + json.byteLength);
  new DataView(message.buffer).setUint32(0, json.byteLength, true);
  message.set(json, 4);
  return message;
}
