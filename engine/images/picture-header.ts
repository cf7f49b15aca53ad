/** The properties of a picture that its header contains, known before any pixel is decoded. */
import type { ImageFormat } from "./bare-picture.ts";
import type { Orientation } from "./orientation.ts";

export interface PictureHeader {
  /** `rgb`: frames of a video, which are decoded already. */
  readonly format: ImageFormat | "rgb";
  /** Stored size in pixels. */
  readonly width: number;
  readonly height: number;
  /**
   * Pixels that the decoder computes. More than those of the picture for a TIFF whose tiles it does not fill, and for an
   * AVIF with several frames, tiles or a plane of transparency.
   */
  readonly numDecodedPixels: number;
  /** Displayed size in pixels: a quarter turn in EXIF swaps width and height. */
  readonly shownSize: { readonly width: number; readonly height: number };
  /** What is left to do after the decoder has turned the picture. Left out: nothing. */
  readonly orientation?: Orientation;
  /** Samples per pixel, including transparency. */
  readonly numChannels: number;
  readonly bitsPerSample: number;
  /** Four inks, converted to RGB after decoding. */
  readonly isCmyk: boolean;
  /** Passes of the decoder over the whole picture: the scans of a JPEG, 2 for an interlaced PNG, otherwise 1. */
  readonly numPasses: number;
  /** Encoded size. */
  readonly numBytes: number;
}
