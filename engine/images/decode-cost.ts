/** Estimates from the header how much work decoding a picture takes, and sets the limits. */
import type { PictureHeader } from "./picture-header.ts";

interface FormatCost {
  readonly perPixel: number;
  /** In addition to the cost per pixel: entropy coding of noise. */
  readonly perByte: number;
}

/**
 * In units of about 10 ns on one core of an AMD EPYC, the time for a pixel of an ordinary JPEG or PNG. Measured with
 * libvips 8.18: an AVIF pixel takes 22 to 30 ns and one of its bytes 115 ns, a lossy WebP pixel 12 ns.
 */
const formatCosts: Readonly<Record<PictureHeader["format"], FormatCost>> = {
  rgb: { perPixel: 1, perByte: 0 },
  png: { perPixel: 1, perByte: 0 },
  jpeg: { perPixel: 1, perByte: 0 },
  gif: { perPixel: 1, perByte: 0 },
  tiff: { perPixel: 1, perByte: 0 },
  webp: { perPixel: 1.5, perByte: 2 },
  avif: { perPixel: 3, perByte: 10 },
};

/** Bits of a pixel of 8-bit RGB, whose conversion is part of `perPixel`. Wider pixels cost in proportion. */
const PLAIN_PIXEL_BITS = 24;

/** Cost of one more pass over a pixel. A progressive JPEG of ten scans takes twice as long as a baseline one. */
const passCosts: Readonly<Partial<Record<PictureHeader["format"], number>>> = { jpeg: 0.1, png: 1 };

/** Cost of a row in addition to its pixels: 220 to 350 ns, nearly everything for a picture one pixel wide. */
const ROW_COST = 32;

/**
 * Estimates the cost in pixels of a plain 8-bit RGB picture: a baseline JPEG of 12 megapixels costs about 12 million.
 * The cost also bounds the decoder's memory, because deeper pixels cost more.
 */
export function decodeCostOf(header: PictureHeader): number {
  const { format, height, numDecodedPixels, numChannels, bitsPerSample, numPasses, numBytes } = header;
  const { perPixel, perByte } = formatCosts[format];
  const depth = Math.max((numChannels * bitsPerSample) / PLAIN_PIXEL_BITS, 1);
  const passes = (passCosts[format] ?? 0) * (numPasses - 1);
  return Math.ceil(numDecodedPixels * (perPixel + depth - 1 + passes) + height * ROW_COST + numBytes * perByte);
}

export interface DecodeLimits {
  readonly maxDecodeCost: number;
  /** Limit for all new pictures of a request together. */
  readonly maxRequestDecodeCost: number;
  readonly decodeTimeoutMs: number;
}
