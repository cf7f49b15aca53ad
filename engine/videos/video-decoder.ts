/** Reads videos and decodes their frames. */
import { EngineError } from "../contract/errors.ts";
import type { PictureOwner } from "../images/image-processor.ts";

export interface VideoFacts {
  /** As shown, in pixels. */
  readonly width: number;
  readonly height: number;
  /** By frame: seconds from the first frame, ascending. */
  readonly frameTimes: Float64Array;
  readonly durationSeconds: number;
  /** Frames per second, on average. */
  readonly fps: number;
}

export interface VideoFrame {
  readonly index: number;
  readonly width: number;
  readonly height: number;
  /** Row-major [height, width, 3], sRGB. */
  readonly data: Uint8Array;
}

export interface EncodedVideo {
  readonly bytes: Uint8Array;
  readonly owner?: PictureOwner;
}

export interface VideoDecoder {
  /** Decodes no pixel. Throws EngineError of videos, or `aborted`. */
  readFacts(video: EncodedVideo, signal: AbortSignal): Promise<VideoFacts>;
  /** Frames by ascending index. Throws like `readFacts`. */
  decodeFrames(video: EncodedVideo, indices: readonly number[], signal: AbortSignal): Promise<readonly VideoFrame[]>;
  close(): Promise<void>;
}

export function createVideoDecoder(_limits: { readonly videoDecodeTimeoutMs: number }): VideoDecoder {
  const refuse = async (): Promise<never> => {
    throw new EngineError("invalid_video", "No decoder for videos is installed.");
  };
  return { readFacts: refuse, decodeFrames: refuse, close: async () => {} };
}
