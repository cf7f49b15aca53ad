/**
 * Videos as their frames. Clients of vLLM send `data:video/jpeg;base64,<frame>,<frame>,…`, those of Alibaba a list of
 * references.
 */
import { allOrNone } from "../concurrent-work.ts";
import { EngineError } from "../contract/errors.ts";
import type { ImageProcessor, Picture, PictureOwner } from "../images/image-processor.ts";
import type { VideoFacts, VideoFrame } from "./video-decoder.ts";

const header = /^data:video\/(?:jpeg|jpg);base64,/i;

/**
 * References to the frames; null for a reference to a file. Throws EngineError `invalid_video` for none, or
 * `video_too_large`.
 */
export function frameReferences(reference: string | readonly string[], maxFrames: number): readonly string[] | null {
  const frames = typeof reference === "string" ? framesOfUrl(reference, maxFrames) : reference;
  if (frames === null) return null;
  if (frames.length === 0) throw new EngineError("invalid_video", "The video has no frames.");
  if (frames.length <= maxFrames) return frames;
  throw new EngineError("video_too_large", `The video has more frames than the limit of ${maxFrames}.`, {
    setting: "maxVideoFrames",
  });
}

function framesOfUrl(reference: string, maxFrames: number): string[] | null {
  const start = header.exec(reference.slice(0, 64))?.[0].length;
  if (start === undefined) return null;
  const frames = reference.slice(start).split(",", maxFrames + 1);
  return frames.map((frame) => `data:image/jpeg;base64,${frame}`);
}

export interface FrameSequence {
  readonly facts: VideoFacts;
  readonly decodeFrames: (
    indices: readonly number[],
    owner: PictureOwner,
    signal: AbortSignal,
  ) => Promise<readonly VideoFrame[]>;
}

/**
 * Reads the headers of the frames. Throws EngineError `invalid_video` for frames of several sizes, and those of pictures.
 *
 * @param framesPerSecond At which the frames follow each other.
 */
export async function openFrameSequence(
  frames: readonly Uint8Array[],
  framesPerSecond: number,
  images: Pick<ImageProcessor, "readHeader" | "decode">,
  { owner, signal }: { readonly owner: PictureOwner; readonly signal: AbortSignal },
): Promise<FrameSequence> {
  const pictures = await allOrNone(
    frames,
    async (bytes, either): Promise<Required<Picture>> => ({
      bytes,
      owner,
      header: await images.readHeader({ bytes, owner }, either),
    }),
    signal,
  );
  const { width, height } = pictures[0]!.header.shownSize;
  const other = pictures.findIndex(
    ({ header: { shownSize } }) => shownSize.width !== width || shownSize.height !== height,
  );
  if (other !== -1) {
    const { shownSize } = pictures[other]!.header;
    throw new EngineError(
      "invalid_video",
      `Frame ${other} of the video has ${shownSize.width} x ${shownSize.height} pixels, and frame 0 has ${width} x ${height}.`,
    );
  }
  return {
    facts: {
      width,
      height,
      frameTimes: Float64Array.from(frames, (_, index) => index / framesPerSecond),
      durationSeconds: frames.length / framesPerSecond,
      fps: framesPerSecond,
    },
    decodeFrames: (indices, decodingOwner, decodingSignal) =>
      allOrNone(
        indices,
        async (index, either) => {
          const picture = { ...pictures[index]!, owner: decodingOwner };
          const { data } = await images.decode(picture, either);
          return { index, width, height, data };
        },
        decodingSignal,
      ),
  };
}
