/** Pictures that tests compute instead of storing, with the integer arithmetic of test/fixtures/pixels/record.py. */
import { crc32, deflateSync } from "node:zlib";

import type { DecodedImage } from "../../../engine/images/decode-image.ts";

export type PictureKind = "photo" | "drawing";

export function computePicture(kind: PictureKind, width: number, height: number): DecodedImage {
  const data = new Uint8Array(width * height * 3);
  const colourAt = kind === "photo" ? photoColour : drawingColour;
  for (let y = 0, to = 0; y < height; y++) {
    for (let x = 0; x < width; x++, to += 3) data.set(colourAt(x, y, width, height), to);
  }
  return { width, height, data };
}

type Colour = readonly [red: number, green: number, blue: number];

function photoColour(x: number, y: number, width: number, height: number): Colour {
  const grain = Math.floor((((x * 7919) ^ (y * 104_729)) & 0xffff) * (40_503 / 256)) & 31;
  const right = Math.max(width - 1, 1);
  const bottom = Math.max(height - 1, 1);
  return [
    Math.floor((x * 191) / right) + grain,
    Math.floor((y * 191) / bottom) + (((x >> 2) ^ (y >> 3)) & 63),
    255 - Math.floor((x * 127) / right) - Math.floor((y * 96) / bottom) - grain,
  ];
}

/** White, with thin black lines, a red disc and a green bar. */
function drawingColour(x: number, y: number, width: number, height: number): Colour {
  const radius = Math.floor((Math.min(width, height) * 2) / 3);
  if (Math.floor((y * 5) / height) === 3 && Math.floor((x * 3) / width) === 1) return [10, 160, 90];
  if ((2 * x - width) ** 2 + (2 * y - height) ** 2 < radius * radius) return [220, 20, 30];
  return (x * 7 + y * 3) % 23 === 0 ? [0, 0, 0] : [255, 255, 255];
}

/** An 8-bit RGB PNG. */
export function encodePng({ width, height, data }: DecodedImage): Buffer {
  const rows = Buffer.alloc(height * (1 + width * 3));
  for (let row = 0; row < height; row++) {
    rows.set(data.subarray(row * width * 3, (row + 1) * width * 3), row * (1 + width * 3) + 1);
  }
  return writePng({ width, height, bitDepth: 8, colourType: "rgb" }, deflateSync(rows, { level: 1 }));
}

export interface PngHeader {
  readonly width: number;
  readonly height: number;
  readonly bitDepth: 1 | 2 | 4 | 8 | 16;
  readonly colourType: keyof typeof pngColours;
  readonly isInterlaced?: boolean;
}

/** PNG's number, and the samples of a pixel. */
const pngColours = {
  grey: { type: 0, numSamples: 1 },
  rgb: { type: 2, numSamples: 3 },
  palette: { type: 3, numSamples: 1 },
  "rgb-alpha": { type: 6, numSamples: 4 },
} as const;

/** A PNG with any header, whatever its compressed pixels contain. @param chunks Before the pixels. */
export function writePng(
  { width, height, bitDepth, colourType, isInterlaced = false }: PngHeader,
  compressedPixels: Uint8Array,
  chunks: readonly (readonly [name: string, content: Uint8Array])[] = [],
): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([bitDepth, pngColours[colourType].type, 0, 0, isInterlaced ? 1 : 0], 8);
  const signature = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
  return Buffer.concat([
    signature,
    pngChunk("IHDR", header),
    ...chunks.map(([name, content]) => pngChunk(name, content)),
    pngChunk("IDAT", compressedPixels),
    pngChunk("IEND", new Uint8Array(0)),
  ]);
}

/** A PNG whose samples are all 0. */
export function blankPng(header: PngHeader, chunks?: Parameters<typeof writePng>[2]): Buffer {
  const { width, height, bitDepth, colourType, isInterlaced } = header;
  const rowBytes = 1 + Math.ceil((width * pngColours[colourType].numSamples * bitDepth) / 8);
  // Interlaced rows are shorter, and there are more of them. Surplus bytes are harmless.
  const numRows = isInterlaced === true ? height * 2 : height;
  return writePng(header, deflateSync(Buffer.alloc(rowBytes * numRows), { level: 1 }), chunks);
}

function pngChunk(kind: string, data: Uint8Array): Buffer {
  const chunk = Buffer.alloc(12 + data.byteLength);
  chunk.writeUInt32BE(data.byteLength, 0);
  chunk.write(kind, 4, "latin1");
  chunk.set(data, 8);
  chunk.writeUInt32BE(crc32(chunk.subarray(4, 8 + data.byteLength)), 8 + data.byteLength);
  return chunk;
}
