/**
 * Cuts files down to their first picture: no later frames or pages, no text chunks. Libraries count, list or inflate
 * all of these before they decode a pixel, and cannot be interrupted: 200,000 frames in a WebP of 10 MB take minutes,
 * the text chunks of a PNG and the frames of a GIF of 20 MB take seconds.
 *
 * The first bytes alone tell the format: names, types and suffixes can be wrong.
 */
import { EngineError } from "../contract/errors.ts";
import { boxesIn } from "./avif-boxes.ts";
import { firstGifFrame } from "./gif-frame.ts";

/**
 * Returns the bytes of the first frame or page, possibly those given. Does not change `bytes`. Throws EngineError
 * `invalid_image` for an animation that is shorter than it declares.
 */
export function barePicture(bytes: Uint8Array, format: ImageFormat): Uint8Array {
  switch (format) {
    case "webp":
      return firstFrameOfWebp(bytes);
    case "tiff":
      return firstPageOfTiff(bytes);
    case "png":
      return pngWithoutTexts(bytes);
    case "avif":
      return stillAvif(bytes);
    case "gif":
      return firstFrameOfGif(bytes);
    case "jpeg":
      return bytes;
    default:
      return format satisfies never;
  }
}

/** Files have fewer than ten brands. */
const MAX_FILE_TYPE_BYTES = 256;

const RIFF_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;

/** RIFF: chunks of a name, a length and content padded to an even length. `ANMF` is one frame of an animation. */
function firstFrameOfWebp(bytes: Uint8Array): Uint8Array {
  const view = viewOf(bytes);
  let numFrames = 0;
  for (let at = RIFF_HEADER_BYTES; at + CHUNK_HEADER_BYTES <= bytes.byteLength;) {
    const isFrame = nameAt(bytes, at) === "ANMF";
    if (isFrame && numFrames === 1) return cutWebp(bytes, at);
    if (isFrame) numFrames++;
    const length = view.getUint32(at + 4, true);
    at += CHUNK_HEADER_BYTES + length + (length % 2);
  }
  return bytes;
}

function cutWebp(bytes: Uint8Array, end: number): Uint8Array {
  const endOfFile = CHUNK_HEADER_BYTES + viewOf(bytes).getUint32(4, true);
  if (endOfFile > bytes.byteLength) {
    throw new EngineError("invalid_image", "The webp picture is broken or incomplete.");
  }
  const cut = new Uint8Array(bytes.subarray(0, end));
  viewOf(cut).setUint32(4, end - CHUNK_HEADER_BYTES, true);
  return cut;
}

const WEBP_ANIMATION = 0x02;
const WEBP_ALPHA = 0x10;

/** Of a WebP. libwebp decodes frames with alpha then too, and leaves the canvas around a small frame transparent. */
export function isOpaqueAnimation(bytes: Uint8Array): boolean {
  const flags = nameAt(bytes, RIFF_HEADER_BYTES) === "VP8X" ? bytes[RIFF_HEADER_BYTES + CHUNK_HEADER_BYTES]! : 0;
  return (flags & WEBP_ANIMATION) !== 0 && (flags & WEBP_ALPHA) === 0;
}

/** TIFF: the header points to the first directory, and each directory ends with a pointer to the next, 0 for none. */
function firstPageOfTiff(bytes: Uint8Array): Uint8Array {
  const view = viewOf(bytes);
  if (bytes.byteLength < 8) return bytes;
  const isLittleEndian = bytes[0] === "I".charCodeAt(0);
  const directory = view.getUint32(4, isLittleEndian);
  if (directory + 2 > bytes.byteLength) return bytes;
  const next = directory + 2 + view.getUint16(directory, isLittleEndian) * 12;
  if (next + 4 > bytes.byteLength || view.getUint32(next, isLittleEndian) === 0) return bytes;
  const cut = new Uint8Array(bytes);
  viewOf(cut).setUint32(next, 0, isLittleEndian);
  return cut;
}

const PNG_SIGNATURE_BYTES = 8;
/** Bytes around the content of a chunk: length, name and checksum. */
const PNG_CHUNK_BYTES = 12;
const textChunks: ReadonlySet<string> = new Set(["tEXt", "zTXt", "iTXt"]);

/** Where each chunk begins and ends, with its length, name and checksum. The last one may end behind the file. */
export function* pngChunks(bytes: Uint8Array): Generator<{ readonly at: number; readonly end: number }> {
  const view = viewOf(bytes);
  for (let at = PNG_SIGNATURE_BYTES; at + PNG_CHUNK_BYTES <= bytes.byteLength;) {
    const end = at + PNG_CHUNK_BYTES + view.getUint32(at, false);
    yield { at, end };
    at = end;
  }
}

function pngWithoutTexts(bytes: Uint8Array): Uint8Array {
  const kept: Uint8Array[] = [];
  let keptFrom = 0;
  for (const { at, end } of pngChunks(bytes)) {
    if (!textChunks.has(nameAt(bytes, at + 4))) continue;
    kept.push(bytes.subarray(keptFrom, at));
    keptFrom = end;
  }
  if (kept.length === 0) return bytes;
  return Buffer.concat([...kept, bytes.subarray(keptFrom)]);
}

const GIF_TRAILER = 0x3b;

function firstFrameOfGif(bytes: Uint8Array): Uint8Array {
  const { end } = firstGifFrame(bytes) ?? { end: bytes.byteLength };
  if (end >= bytes.byteLength || bytes[end] === GIF_TRAILER) return bytes;
  return Buffer.concat([bytes.subarray(0, end), Uint8Array.of(GIF_TRAILER)]);
}

const stillBrands: Readonly<Record<string, string>> = { avis: "avif", msf1: "mif1" };

/** An animation (`avis`) has its first picture as an item too, and its frames in the box `moov`. */
function stillAvif(bytes: Uint8Array): Uint8Array {
  const edits: (readonly [text: string, offset: number])[] = [];
  for (const { type, typeOffset, content } of boxesIn(bytes)) {
    if (type === "moov") edits.push(["free", typeOffset]);
    if (type !== "ftyp") continue;
    const start = content.byteOffset - bytes.byteOffset;
    // A decoder looks for frames if any brand promises them.
    for (let brand = start; brand + 4 <= start + content.byteLength; brand += 4) {
      const stillBrand = stillBrands[nameAt(bytes, brand)];
      if (stillBrand !== undefined) edits.push([stillBrand, brand]);
    }
  }
  if (edits.length === 0) return bytes;
  const still = Buffer.from(bytes);
  for (const [text, offset] of edits) still.write(text, offset, "latin1");
  return still;
}

/** The name of a chunk: four letters. */
export function nameAt(bytes: Uint8Array, at: number): string {
  return String.fromCharCode(bytes[at]!, bytes[at + 1]!, bytes[at + 2]!, bytes[at + 3]!);
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export type ImageFormat = "png" | "jpeg" | "webp" | "gif" | "avif" | "tiff";

export const imageFormats: readonly ImageFormat[] = ["png", "jpeg", "webp", "gif", "avif", "tiff"];

/** Null for unsupported formats, including SVG, PDF and others that can contain scripts or references. */
export function detectImageFormat(bytes: Uint8Array): ImageFormat | null {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, 32)).toString("latin1");
  if (head.startsWith("\x89PNG\r\n\x1a\n")) return "png";
  if (head.startsWith("\xff\xd8\xff")) return "jpeg";
  if (head.startsWith("RIFF") && head.startsWith("WEBP", 8)) return "webp";
  if (head.startsWith("GIF87a") || head.startsWith("GIF89a")) return "gif";
  if (head.startsWith("ftyp", 4) && hasAvifBrand(bytes)) return "avif";
  if (head.startsWith("II*\0") || head.startsWith("MM\0*")) return "tiff";
  return null;
}

/** The file type box has the major brand, a version and then the compatible brands, of which HEIC shares all others. */
function hasAvifBrand(bytes: Uint8Array): boolean {
  const end = Math.min(viewOf(bytes).getUint32(0), bytes.byteLength, MAX_FILE_TYPE_BYTES);
  for (let at = 8; at + 4 <= end; at += at === 8 ? 8 : 4) {
    if (/^avi[fs]$/.test(nameAt(bytes, at))) return true;
  }
  return false;
}
