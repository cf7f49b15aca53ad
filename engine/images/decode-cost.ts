/** How much work a picture is to decode, known from its header, and how much it may be. */
import type { ImageFormat } from "./image-format.ts";
import type { PictureHeader } from "./picture-header.ts";

interface FormatCost {
  readonly perPixel: number;
  /** Beyond what every pixel costs: entropy coding of noise. */
  readonly perByte: number;
}

/**
 * In units of about 10 ns on one core of an AMD EPYC, the time for a pixel of an ordinary JPEG or PNG, measured with
 * libvips 8.18: an AVIF pixel takes 22 to 30 ns and a byte of one 115 ns, a lossy WebP pixel 12 ns.
 */
const formatCosts: Readonly<Record<ImageFormat, FormatCost>> = {
  png: { perPixel: 1, perByte: 0 },
  jpeg: { perPixel: 1, perByte: 0 },
  gif: { perPixel: 1, perByte: 0 },
  tiff: { perPixel: 1, perByte: 0 },
  webp: { perPixel: 1.5, perByte: 2 },
  avif: { perPixel: 3, perByte: 10 },
};

/** Bits of a pixel of 8-bit RGB, whose conversion is part of `perPixel`; wider pixels cost in proportion. */
const PLAIN_PIXEL_BITS = 24;

/** Of one more pass over a pixel. A progressive JPEG of ten scans takes twice the time of a baseline one. */
const passCosts: Readonly<Partial<Record<ImageFormat, number>>> = { jpeg: 0.1, png: 1 };

/** What a row costs beside its pixels: 220 to 350 ns, which is nearly all of a picture one pixel wide. */
const ROW_COST = 32;

/**
 * Estimate, in pixels of a plain 8-bit RGB picture: a baseline JPEG of 12 megapixels costs about 12 million. It bounds
 * the memory of the decoder too, as deeper pixels cost more.
 */
export function decodeCostOf(header: PictureHeader): number {
  const { format, width, height, numChannels, bitsPerSample, numPasses, numBytes } = header;
  const { perPixel, perByte } = formatCosts[format];
  const depth = Math.max((numChannels * bitsPerSample) / PLAIN_PIXEL_BITS, 1);
  const passes = (passCosts[format] ?? 0) * (numPasses - 1);
  return Math.ceil(width * height * (perPixel + depth - 1 + passes) + height * ROW_COST + numBytes * perByte);
}

export interface DecodeLimits {
  readonly maxDecodeCost: number;
  /** Of all new pictures of one request. */
  readonly maxRequestDecodeCost: number;
  readonly decodeTimeoutMs: number;
}
