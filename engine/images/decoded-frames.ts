/** Frames of a video on their way to the threads that process pictures: decoded already, one after the other. */
import { invariant } from "../contract/errors.ts";
import type { RgbImage } from "../multimodal/pixel-program.ts";
import type { PictureHeader } from "./picture-header.ts";

/** Describes `numFrames` frames as one picture. Their bytes are [numFrames, height, width, 3]. */
export function framesHeader({ width, height }: Pick<RgbImage, "width" | "height">, numFrames: number): PictureHeader {
  return {
    format: "rgb",
    width,
    height,
    numDecodedPixels: width * height * numFrames,
    shownSize: { width, height },
    numChannels: 3,
    bitsPerSample: 8,
    isCmyk: false,
    numPasses: 1,
    numBytes: width * height * numFrames * 3,
  };
}

/** The first frame, with the others as `further`. */
export function splitFrames(bytes: Uint8Array, { width, height }: PictureHeader): RgbImage {
  const length = width * height * 3;
  invariant(bytes.length > 0 && bytes.length % length === 0, `frames of ${width} x ${height} in ${bytes.length} bytes`);
  const [first, ...further] = Array.from({ length: bytes.length / length }, (_, index) => ({
    width,
    height,
    data: bytes.subarray(index * length, (index + 1) * length),
  }));
  return further.length === 0 ? first! : { ...first!, further };
}
