/** The quarter turns and mirrorings that pictures ask for: how they are found, and what they do to the pixels. */
import { inflateSync } from "node:zlib";

import { nameAt, pngChunks } from "./bare-picture.ts";
import type { ImageFormat } from "./bare-picture.ts";
import { readTiffTags } from "./tiff-tags.ts";

/** Where the shown pixel (x, y) is stored: columns are x or y, forwards or backwards. */
export interface Orientation {
  /** Whether rows are shown as columns. */
  readonly swapsAxes: boolean;
  /** In stored pixels. */
  readonly mirrorsColumns: boolean;
  readonly mirrorsRows: boolean;
}

export const upright: Orientation = { swapsAxes: false, mirrorsColumns: false, mirrorsRows: false };

/** [rows, columns, 3] as stored to [rows, columns, 3] as shown. Returns `stored` itself if both are the same. */
export function orient(
  stored: Uint8Array,
  { width, height }: { readonly width: number; readonly height: number },
  { swapsAxes, mirrorsColumns, mirrorsRows }: Orientation,
): Uint8Array {
  if (!swapsAxes && !mirrorsColumns && !mirrorsRows) return stored;
  const shown = new Uint8Array(stored.byteLength);
  const columnStep = mirrorsColumns ? -3 : 3;
  const rowStep = (mirrorsRows ? -3 : 3) * width;
  const origin = (mirrorsColumns ? (width - 1) * 3 : 0) + (mirrorsRows ? (height - 1) * width * 3 : 0);
  const [shownWidth, shownHeight] = swapsAxes ? [height, width] : [width, height];
  const [stepX, stepY] = swapsAxes ? [rowStep, columnStep] : [columnStep, rowStep];
  for (let y = 0, to = 0; y < shownHeight; y++) {
    for (let x = 0, from = origin + y * stepY; x < shownWidth; x++, from += stepX, to += 3) {
      shown[to] = stored[from]!;
      shown[to + 1] = stored[from + 1]!;
      shown[to + 2] = stored[from + 2]!;
    }
  }
  return shown;
}

/** By the number that EXIF has for it. */
const orientations: readonly Orientation[] = [
  upright,
  upright,
  { swapsAxes: false, mirrorsColumns: true, mirrorsRows: false },
  { swapsAxes: false, mirrorsColumns: true, mirrorsRows: true },
  { swapsAxes: false, mirrorsColumns: false, mirrorsRows: true },
  { swapsAxes: true, mirrorsColumns: false, mirrorsRows: false },
  { swapsAxes: true, mirrorsColumns: false, mirrorsRows: true },
  { swapsAxes: true, mirrorsColumns: true, mirrorsRows: true },
  { swapsAxes: true, mirrorsColumns: true, mirrorsRows: false },
];

/** Of a text in a PNG, decompressed: EXIF has at most 64 KiB, and its digits twice as many. */
const MAX_TEXT_BYTES = 2 ** 18;

/**
 * For a picture in which the decoder library found no orientation: Pillow also looks behind the pixels of a PNG, in the
 * texts that older programs write into one, and in XMP of PNG, JPEG and WebP.
 *
 * @param xmp Metadata that the library found; undefined without any.
 */
export function askedOrientation(bytes: Uint8Array, format: ImageFormat, xmp: Uint8Array | undefined): Orientation {
  if (format === "avif") return upright;
  const found = format === "png" ? orientationInPng(bytes) : xmp === undefined ? null : orientationInXmp(xmp);
  return orientations[found ?? 1] ?? upright;
}

/** ImageMagick's name for EXIF. One byte with the kind of compression follows. */
const rawProfile = "Raw profile type exif\0";

function orientationInPng(bytes: Uint8Array): number | null {
  let exif: Uint8Array | null = null;
  let profile: Uint8Array | null = null;
  let xmp: Uint8Array | null = null;
  for (const { at, end } of pngChunks(bytes)) {
    const content = bytes.subarray(at + 8, end - 4);
    const name = nameAt(bytes, at + 4);
    if (name === "eXIf") exif ??= content;
    if (name === "iTXt" && startsWith(content, "XML:com.adobe.xmp\0")) xmp ??= content;
    if ((name === "tEXt" || name === "zTXt") && startsWith(content, rawProfile)) {
      profile ??= name === "zTXt" ? inflated(content.subarray(rawProfile.length + 1)) : content;
    }
  }
  const inExif = orientationInExif(exif ?? bytesOfDigits(profile));
  return inExif ?? (xmp === null ? null : orientationInXmp(xmp));
}

function startsWith(content: Uint8Array, text: string): boolean {
  return Buffer.from(content.buffer, content.byteOffset, Math.min(content.byteLength, text.length)).equals(
    Buffer.from(text, "latin1"),
  );
}

/** Null if it is broken or too long. */
function inflated(content: Uint8Array): Uint8Array | null {
  try {
    return inflateSync(content, { maxOutputLength: MAX_TEXT_BYTES });
  } catch {
    return null;
  }
}

/** A name, a number of bytes, and these as hexadecimal digits, on lines. */
function bytesOfDigits(profile: Uint8Array | null): Uint8Array | null {
  if (profile === null || profile.byteLength > MAX_TEXT_BYTES) return null;
  const digits = /\nexif\n\s*\d+\n([\da-fA-F\s]+)/.exec(Buffer.from(profile).toString("latin1"))?.[1];
  return digits === undefined ? null : Buffer.from(digits.replace(/\s/g, ""), "hex");
}

const ORIENTATION = 274;
const exifMark = "Exif\0\0";

/** EXIF is a directory of TIFF. Null if it is broken. */
function orientationInExif(exif: Uint8Array | null): number | null {
  if (exif === null) return null;
  try {
    const directory = startsWith(exif, exifMark) ? exif.subarray(exifMark.length) : exif;
    return readTiffTags(directory, [ORIENTATION]).get(ORIENTATION) ?? null;
  } catch {
    return null;
  }
}

function orientationInXmp(xmp: Uint8Array): number | null {
  const digit = /tiff:Orientation(?:="|>)(\d)/.exec(Buffer.from(xmp).toString("latin1"))?.[1];
  return digit === undefined ? null : Number(digit);
}
