/** Decodes encoded bytes to a header and to 8-bit RGB. Only this file imports sharp. */
import sharp from "sharp";

import { EngineError, invariant } from "../contract/errors.ts";
import { countAvifPixels } from "./avif-pixels.ts";
import { barePicture, detectImageFormat, imageFormats, isOpaqueAnimation, type ImageFormat } from "./bare-picture.ts";
import { decodeCostOf } from "./decode-cost.ts";
import { splitFrames } from "./decoded-frames.ts";
import { foreignFormatOf } from "./format-names.ts";
import { firstGifFrame, paintGifCanvas } from "./gif-frame.ts";
import { countJpegScans } from "./jpeg-scans.ts";
import { askedOrientation, orient, upright } from "./orientation.ts";
import type { PictureHeader } from "./picture-header.ts";
import { describeTiffForm, rejectPlainYcbcr } from "./tiff-forms.ts";
import { readExtraSample } from "./tiff-tags.ts";
import { countTiffPixels } from "./tiff-tiles.ts";
import { firstSamples, highBytes, toRgb, type ColourModel } from "./to-rgb.ts";

export interface DecodedImage {
  readonly width: number;
  readonly height: number;
  /** Row-major [height, width, 3], sRGB. */
  readonly data: Uint8Array;
  /** See `RgbImage`. */
  readonly further?: readonly DecodedImage[];
}

export interface HeaderLimits {
  readonly maxImagePixels: number;
  /** As estimated by `decodeCostOf`. */
  readonly maxDecodeCost: number;
}

export interface DecodeImageOptions extends HeaderLimits {
  /** Rounded up to whole seconds. */
  readonly decodeTimeoutMs: number;
}

// Pictures are untrusted: decoders of unsupported formats stay off, whatever the bytes contain. They are blocked one by
// one, because the setting is process-wide and runs in each thread: blocking all and unblocking some would reject
// pictures that other threads are opening at that moment.
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
// Requests rarely repeat a picture, and the processor cache handles repeated ones.
sharp.cache(false);
// Pictures are decoded in parallel; threads inside one would only compete with the others.
sharp.concurrency(1);

/** Errors in the picture's data are failures; invalid colour profiles are not. */
const inputOptions = { failOn: "error", ignoreIcc: true } as const;

/** Bits of a sample by libvips' format names. Complex numbers are left out, because no supported format has them. */
const bitsOfDepth: Readonly<Record<string, number>> = {
  uchar: 8,
  char: 8,
  ushort: 16,
  short: 16,
  uint: 32,
  int: 32,
  float: 32,
  double: 64,
};

/**
 * Does not decode pixels. Throws EngineError `invalid_image` (unsupported format, broken header) or `image_too_large`.
 */
export async function readPictureHeader(bytes: Uint8Array, limits: HeaderLimits): Promise<PictureHeader> {
  const format = requireFormat(bytes);
  // Before the library sees the file, because its metadata may be larger than the file.
  const numAvifPixels = format === "avif" ? countAvifPixels(bytes) : 0;
  const header = await naming(bytes, format, async () => {
    if (format === "tiff") rejectPlainYcbcr(bytes);
    const metadata = await sharp(barePicture(bytes, format), { ...inputOptions, limitInputPixels: false }).metadata();
    const { width, height, autoOrient, orientation: known, xmp, channels, depth, space, isProgressive } = metadata;
    const size = { width, height };
    const orientation = known === undefined ? askedOrientation(bytes, format, xmp) : upright;
    return {
      format,
      ...size,
      numDecodedPixels: Math.max(numAvifPixels, format === "tiff" ? countTiffPixels(bytes, size) : width * height),
      shownSize: orientation.swapsAxes
        ? { width: height, height: width }
        : { width: autoOrient.width, height: autoOrient.height },
      orientation,
      numChannels: channels,
      bitsPerSample: bitsOfDepth[depth] ?? 64,
      isCmyk: space === "cmyk" && (channels === 4 || (format === "tiff" && readExtraSample(bytes) === 0)),
      numPasses: format === "jpeg" ? countJpegScans(bytes) : format === "png" && isProgressive ? 2 : 1,
      numBytes: bytes.byteLength,
    };
  });
  checkHeader(header, limits);
  return header;
}

function checkHeader(header: PictureHeader, { maxImagePixels, maxDecodeCost }: HeaderLimits): void {
  const { format, width, height, numDecodedPixels, numChannels, bitsPerSample, numPasses } = header;
  const numPixels = width * height;
  if (numPixels > maxImagePixels) {
    throw new EngineError(
      "image_too_large",
      `The image has ${width}x${height} = ${numPixels} pixels; the limit is ${maxImagePixels}.`,
      { setting: "maxImagePixels" },
    );
  }
  const cost = decodeCostOf(header);
  if (cost > maxDecodeCost) {
    const passes = numPasses === 1 ? "" : ` in ${numPasses} passes`;
    const decoded = numDecodedPixels === numPixels ? "" : `, ${numDecodedPixels} pixels decoded`;
    throw new EngineError(
      "image_too_large",
      `The image (${format}, ${width}x${height} pixels of ${numChannels} x ${bitsPerSample} bits${passes}${decoded}) costs as much to decode as ${cost} pixels of plain RGB; the limit is ${maxDecodeCost}. Send it smaller, or as a baseline JPEG.`,
      { setting: "maxDecodeCost" },
    );
  }
}

/** The longest time limit that sharp takes. */
const MAX_TIMEOUT_SECONDS = 3600;

/**
 * Decodes the first frame like Pillow's `convert("RGB")` after EXIF orientation, with colour profiles ignored and
 * transparency composited on white (the behaviour of vLLM and of current Hugging Face processors). PNG and other
 * lossless formats give Pillow's bytes. JPEG and WebP differ where the decoder libraries do, by 1 or 2 of 255.
 *
 * The time limit interrupts row-by-row decoders: PNG, TIFF and baseline JPEG. AVIF, WebP, GIF, interlaced PNG and
 * progressive JPEG are decoded by one call, and the limit applies when it returns. `maxDecodeCost` bounds the call.
 *
 * @param header The result of `readPictureHeader` for these bytes under the same limits. If left out, it is read here.
 * @throws EngineError `invalid_image` (unsupported format, broken, truncated) or `image_too_large`.
 */
export async function decodeImage(
  bytes: Uint8Array,
  options: DecodeImageOptions,
  header?: PictureHeader,
): Promise<DecodedImage> {
  const known = header ?? (await readPictureHeader(bytes, options));
  const { format, isCmyk, bitsPerSample, orientation = upright } = known;
  if (format === "rgb") return splitFrames(bytes, known);
  const { maxImagePixels, decodeTimeoutMs } = options;
  // sharp scales all others to 8 bits.
  const isWideCmyk = isCmyk && bitsPerSample === 16;
  return naming(bytes, format, async () => {
    const { data, info } = await sharp(barePicture(bytes, format), {
      ...inputOptions,
      limitInputPixels: Math.min(Math.floor(maxImagePixels), Number.MAX_SAFE_INTEGER),
    })
      .autoOrient()
      .pipelineColourspace(isCmyk ? "cmyk" : "srgb")
      .toColourspace(isCmyk ? "cmyk" : "srgb")
      .timeout({ seconds: Math.min(Math.ceil(decodeTimeoutMs / 1000), MAX_TIMEOUT_SECONDS) })
      .raw({ depth: isWideCmyk ? "ushort" : "uchar" })
      .toBuffer({ resolveWithObject: true })
      .catch((error: Error) => {
        throw isTimeout(error) ? tooSlow(decodeTimeoutMs, error) : error;
      });
    const numColours = isCmyk ? 4 : info.channels <= 2 ? 1 : 3;
    const isTransparent = info.channels > numColours && !isCmyk && hasAlpha(bytes, format);
    const numSamples = isTransparent ? numColours + 1 : numColours;
    const all = isWideCmyk ? highBytes(data) : data;
    const samples = info.channels === numSamples ? all : firstSamples(all, { numSamples, stride: info.channels });
    const model = isCmyk ? "cmyk" : colourModel(numSamples);
    const rgb = model === "rgb" ? samples : toRgb(samples, model);
    if (format === "gif" && !isTransparent) paintGifCanvas(rgb, info.width, firstGifFrame(bytes));
    const [width, height] = orientation.swapsAxes ? [info.height, info.width] : [info.width, info.height];
    return { width, height, data: orient(rgb, info, orientation) };
  });
}

/** Whether the last sample of a pixel is its transparency, where there is one more than the colours. */
function hasAlpha(bytes: Uint8Array, format: ImageFormat): boolean {
  if (format === "tiff") return readExtraSample(bytes) !== 0;
  return format !== "webp" || !isOpaqueAnimation(bytes);
}

/** sharp reports its time limit on a separate line among the decoders' messages. */
function isTimeout({ message }: Error): boolean {
  return /^timeout: \d+% complete/m.test(message);
}

function tooSlow(decodeTimeoutMs: number, cause: Error): EngineError {
  return new EngineError(
    "image_too_large",
    `Decoding the image took longer than the limit of ${decodeTimeoutMs} ms. Send it smaller, or as a baseline JPEG.`,
    { cause, setting: "decodeTimeoutMs" },
  );
}

function requireFormat(bytes: Uint8Array): ImageFormat {
  const format = detectImageFormat(bytes);
  if (format !== null) return format;
  const served = imageFormats.join(", ");
  const foreign = foreignFormatOf(bytes);
  throw new EngineError(
    "invalid_image",
    foreign === null
      ? `The ${bytes.byteLength} bytes are not a picture in a supported format: ${served}.`
      : `The image is ${foreign}. The supported formats are ${served}.`,
  );
}

/** The library's message may contain memory addresses or host paths. The log receives it as the cause. */
async function naming<Result>(bytes: Uint8Array, format: ImageFormat, run: () => Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof EngineError) throw error;
    const form = format === "tiff" ? describeTiffForm(bytes) : null;
    throw new EngineError("invalid_image", form ?? `The ${format} picture is broken or incomplete.`, { cause: error });
  }
}

const colourModels: readonly (ColourModel | undefined)[] = [undefined, "grey", "grey-alpha", "rgb", "rgb-alpha"];

function colourModel(numSamples: number): ColourModel {
  const model = colourModels[numSamples];
  invariant(model !== undefined, `sharp returned ${numSamples} samples per pixel`);
  return model;
}
