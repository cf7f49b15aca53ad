/** What the first bytes of a picture say about it, before any pixel is decoded. */
import type { ImageFormat } from "./image-format.ts";

export interface PictureHeader {
  readonly format: ImageFormat;
  /** In pixels, as the picture is stored. */
  readonly width: number;
  readonly height: number;
  /** In pixels, as the picture is shown: a quarter turn in EXIF swaps the two. */
  readonly shownSize: { readonly width: number; readonly height: number };
  /** Samples of one pixel, transparency included. */
  readonly numChannels: number;
  readonly bitsPerSample: number;
  /** Four inks, which are turned into RGB after decoding. */
  readonly isCmyk: boolean;
  /** Times that the decoder goes over the whole picture: the scans of a JPEG, 2 for an interlaced PNG, otherwise 1. */
  readonly numPasses: number;
  /** Encoded. */
  readonly numBytes: number;
}
