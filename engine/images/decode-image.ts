/** Encoded bytes to 8-bit RGB; the only importer of sharp. */
import sharp from "sharp";
import { EngineError } from "../errors.ts";
import { detectImageFormat, IMAGE_FORMATS } from "./image-format.ts";

export interface DecodedImage {
  readonly width: number;
  readonly height: number;
  /** Row-major [height, width, 3], sRGB. */
  readonly data: Uint8Array;
}

export interface DecodeImageOptions {
  /** Checked against the header before any pixel is decoded. */
  readonly maxImagePixels: number;
}

/** No picture within sensible pixel limits takes this long; a file made to be slow does. */
const MAX_DECODE_SECONDS = 30;

// Pictures come from strangers: decoders of formats that are not served stay off, whatever the bytes look like.
sharp.block({ operation: ["VipsForeignLoad"] });
sharp.unblock({
  operation: [
    "VipsForeignLoadPng",
    "VipsForeignLoadJpeg",
    "VipsForeignLoadWebp",
    "VipsForeignLoadNsgif",
    "VipsForeignLoadHeif",
    "VipsForeignLoadTiff",
  ],
});
// Requests rarely repeat a picture, and a repeated one is met by the processor cache.
sharp.cache(false);

/**
 * Decodes the first frame as Pillow's `convert("RGB")` does, after EXIF orientation, with colour profiles ignored and
 * transparency composited on white (the behaviour of vLLM and of current Hugging Face processors). PNG and other
 * lossless formats give Pillow's bytes; JPEG and WebP differ where the decoder libraries do, by 1 or 2 of 255.
 *
 * Throws EngineError `invalid_image` (not a served format, broken, truncated) or `image_too_large`.
 */
export async function decodeImage(bytes: Uint8Array, { maxImagePixels }: DecodeImageOptions): Promise<DecodedImage> {
  const format = detectImageFormat(bytes);
  if (format === null) {
    const served = IMAGE_FORMATS.join(", ");
    throw new EngineError(
      "invalid_image",
      `The ${bytes.byteLength} bytes are no picture of a served format: ${served}.`,
    );
  }
  const input = { limitInputPixels: false, failOn: "error", ignoreIcc: true } as const;
  try {
    const { width, height } = await sharp(bytes, input).metadata();
    const numPixels = width * height;
    if (numPixels > maxImagePixels) {
      throw new EngineError(
        "image_too_large",
        `The image has ${width}x${height} = ${numPixels} pixels; the limit is ${maxImagePixels}.`,
      );
    }
    const { data, info } = await sharp(bytes, input)
      .autoOrient()
      .toColourspace("srgb")
      .timeout({ seconds: MAX_DECODE_SECONDS })
      .raw({ depth: "uchar" })
      .toBuffer({ resolveWithObject: true });
    return { width: info.width, height: info.height, data: toRgb(data, info.channels) };
  } catch (error) {
    if (error instanceof EngineError) throw error;
    // The library's words may hold addresses of memory or paths of the host; the log has them through the cause.
    throw new EngineError("invalid_image", `The ${format} picture is broken or incomplete.`, { cause: error });
  }
}

/** [n, channels] of grey, grey + alpha, RGB or RGBA to [n, 3]; RGBA and grey + alpha are composited on white. */
function toRgb(pixels: Uint8Array, channels: number): Uint8Array {
  if (channels === 3) return pixels;
  const numPixels = pixels.length / channels;
  const rgb = new Uint8Array(numPixels * 3);
  const hasAlpha = channels === 2 || channels === 4;
  const isGrey = channels < 3;
  for (let pixel = 0; pixel < numPixels; pixel++) {
    const from = pixel * channels;
    const alpha = hasAlpha ? pixels[from + channels - 1] : 255;
    for (let channel = 0; channel < 3; channel++) {
      // Pillow's alpha_composite over opaque white: the rounded quotient by 255.
      const sum = pixels[from + (isGrey ? 0 : channel)] * alpha + 255 * (255 - alpha) + 128;
      rgb[pixel * 3 + channel] = (sum + (sum >> 8)) >> 8;
    }
  }
  return rgb;
}
