/** Encoded bytes to 8-bit RGB; the only importer of sharp. */
import sharp from "sharp";
import { EngineError, invariant } from "../contract/errors.ts";
import { detectImageFormat, IMAGE_FORMATS } from "./image-format.ts";
import { toRgb, type ColourModel } from "./to-rgb.ts";

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

// Pictures come from strangers: decoders of formats that are not served stay off, whatever the bytes look like. They are
// named one by one, as this is for the whole process and runs in each thread: blocking all and letting some through again
// would refuse the pictures that other threads are just opening.
sharp.block({
  operation: [
    "VipsForeignLoadAnalyze",
    "VipsForeignLoadCsv",
    "VipsForeignLoadDcRaw",
    "VipsForeignLoadFits",
    "VipsForeignLoadJp2k",
    "VipsForeignLoadJxl",
    "VipsForeignLoadMagick",
    "VipsForeignLoadMagick7",
    "VipsForeignLoadMat",
    "VipsForeignLoadMatrix",
    "VipsForeignLoadNifti",
    "VipsForeignLoadOpenexr",
    "VipsForeignLoadOpenslide",
    "VipsForeignLoadPdf",
    "VipsForeignLoadPpm",
    "VipsForeignLoadRad",
    "VipsForeignLoadRaw",
    "VipsForeignLoadSvg",
    "VipsForeignLoadUhdr",
    "VipsForeignLoadVips",
  ],
});
// Requests rarely repeat a picture, and a repeated one is met by the processor cache.
sharp.cache(false);
// Pictures are decoded side by side; threads inside one would only contend with those.
sharp.concurrency(1);

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
  const input = { failOn: "error", ignoreIcc: true } as const;
  try {
    const { width, height, space, channels } = await sharp(bytes, { ...input, limitInputPixels: false }).metadata();
    const numPixels = width * height;
    if (numPixels > maxImagePixels) {
      throw new EngineError(
        "image_too_large",
        `The image has ${width}x${height} = ${numPixels} pixels; the limit is ${maxImagePixels}.`,
      );
    }
    const isCmyk = space === "cmyk" && channels === 4;
    const { data, info } = await sharp(bytes, { ...input, limitInputPixels: maxImagePixels })
      .autoOrient()
      .pipelineColourspace(isCmyk ? "cmyk" : "srgb")
      .toColourspace(isCmyk ? "cmyk" : "srgb")
      .timeout({ seconds: MAX_DECODE_SECONDS })
      .raw({ depth: "uchar" })
      .toBuffer({ resolveWithObject: true });
    return { width: info.width, height: info.height, data: toRgb(data, isCmyk ? "cmyk" : colourModel(info.channels)) };
  } catch (error) {
    if (error instanceof EngineError) throw error;
    // The library's words may hold addresses of memory or paths of the host; the log has them through the cause.
    throw new EngineError("invalid_image", `The ${format} picture is broken or incomplete.`, { cause: error });
  }
}

const COLOUR_MODELS: readonly (ColourModel | undefined)[] = [undefined, "grey", "grey-alpha", "rgb", "rgb-alpha"];

function colourModel(numSamples: number): ColourModel {
  const model = COLOUR_MODELS[numSamples];
  invariant(model !== undefined, `sharp gave ${numSamples} samples a pixel`);
  return model;
}
