/** Names the compressions and colours of TIFF files that are not decoded. */
import { EngineError } from "../contract/errors.ts";
import { readTiffTags } from "./tiff-tags.ts";

const COMPRESSION = 259;
const COLOURS = 262;

const OLD_JPEG = 6;
const JPEG = 7;
const YCBCR = 6;

/** Those that the decoder library is built without. */
const compressions: Readonly<Record<number, string>> = {
  34661: "JBIG",
  34712: "JPEG 2000",
  34887: "LERC",
  34925: "LZMA",
  50000: "Zstandard",
  50001: "WebP",
  50002: "JPEG XL",
};

/** Those that the library decodes in some depths, or not at all. */
const colours: Readonly<Record<number, string>> = {
  8: "Lab colours",
  9: "Lab colours",
  10: "Lab colours",
  32803: "raw values of a camera's sensor",
  32844: "LogLuv colours",
  32845: "LogLuv colours",
};

/**
 * For what the library would decode as if it were RGB: it converts YCbCr only as a part of JPEG.
 *
 * @throws EngineError `invalid_image`, also for tags that are no plain numbers.
 */
export function rejectPlainYcbcr(bytes: Uint8Array): void {
  const tags = readTiffTags(bytes, [COMPRESSION, COLOURS]);
  const compression = tags.get(COMPRESSION) ?? 1;
  if (tags.get(COLOURS) !== YCBCR || compression === JPEG || compression === OLD_JPEG) return;
  throw new EngineError("invalid_image", unsupported("has YCbCr colours without being compressed as JPEG"));
}

/** For a file that the library has rejected: the reason, if it is the form of the file; else null. */
export function describeTiffForm(bytes: Uint8Array): string | null {
  const tags = readTiffTags(bytes, [COMPRESSION, COLOURS]);
  const compression = compressions[tags.get(COMPRESSION) ?? 1];
  if (compression !== undefined) return unsupported(`is compressed with ${compression}`);
  const colour = colours[tags.get(COLOURS) ?? 0];
  return colour === undefined ? null : unsupported(`has ${colour}`);
}

function unsupported(form: string): string {
  return `The tiff picture ${form}. That is not supported: save it as RGB with LZW, Deflate, JPEG or no compression, or as PNG.`;
}
