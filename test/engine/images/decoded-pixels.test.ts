/** Pictures whose decoders compute more pixels than their headers say: they are rejected for what they cost. */
import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import sharp from "sharp";
import { describe, expect, test } from "vitest";

import { defaultDecodeLimits } from "../../../engine/contract/default-limits.ts";
import { decodeImage, readPictureHeader } from "../../../engine/images/decode-image.ts";
import { framesOf, gridData, sizeProperty, turnProperty, writeAvif } from "./avif-writer.ts";
import type { AvifItem } from "./avif-writer.ts";
import { tiledTiff } from "./hostile-pictures.ts";

/** The service's limits. */
const limits = { ...defaultDecodeLimits, maxImagePixels: 67_108_864 };
const noLimits = { maxImagePixels: Number.MAX_SAFE_INTEGER, maxDecodeCost: Number.POSITIVE_INFINITY };

const readFixture = (name: string): Buffer => readFileSync(new URL(`../../fixtures/pixels/${name}`, import.meta.url));

const flat = (edge: number, channels: 3 | 4 = 3) =>
  sharp({ create: { width: edge, height: edge, channels, background: { r: 200, g: 10, b: 30, alpha: 0.5 } } });

/** One picture of 8,000 x 8,000 in 1 KiB. */
const large = framesOf(readFixture("8000x8000.avif"));
const medium = framesOf(await flat(2_000).avif({ effort: 0 }).toBuffer());
const small = framesOf(await flat(64).avif({ effort: 0 }).toBuffer());

const whole = (payload: Uint8Array) => [{ offset: 0, length: payload.byteLength }];

function oneItem({ frames, configuration }: typeof large, edge: number, more: Partial<AvifItem> = {}): Buffer {
  const properties = [configuration, sizeProperty(edge, edge), turnProperty()];
  const item = { id: 1, type: "av01", extents: whole(frames), properties: [1, 2], ...more } as const;
  return writeAvif({ payload: frames, items: [item], properties });
}

interface GridSize {
  readonly rows: number;
  readonly columns: number;
  /** Of the picture that is shown. */
  readonly edge: number;
}

/** A grid that shows `edge` x `edge` pixels of as many tiles as `rows` and `columns` say, all of which are one item. */
function grid(tile: typeof large, tileEdge: number, { rows, columns, edge }: GridSize): Buffer {
  const spec = gridData(rows, columns, edge, edge);
  const payload = Buffer.concat([tile.frames, spec]);
  return writeAvif({
    payload,
    items: [
      {
        id: 2,
        type: "grid",
        extents: [{ offset: tile.frames.byteLength, length: spec.byteLength }],
        properties: [3],
      },
      { id: 1, type: "av01", extents: whole(tile.frames), properties: [1, 2] },
    ],
    properties: [tile.configuration, sizeProperty(tileEdge, tileEdge), sizeProperty(edge, edge)],
    references: [{ type: "dimg", from: 2, to: Array.from({ length: rows * columns }, () => 1) }],
  });
}

/** An AVIF of a megabyte with 30 times that as metadata. */
function repeatedMetadata(): Buffer {
  const payload = Buffer.concat([small.frames, Buffer.alloc(2 ** 20)]);
  return writeAvif({
    payload,
    items: [
      { id: 1, type: "av01", extents: whole(small.frames), properties: [1, 2] },
      { id: 2, type: "Exif", extents: Array.from({ length: 30 }, () => whole(payload)[0]!) },
    ],
    properties: [small.configuration, sizeProperty(64, 64)],
    references: [{ type: "cdsc", from: 2, to: [1] }],
  });
}

function transparentItself(): Buffer {
  const { frames, configuration } = small;
  return writeAvif({
    payload: frames,
    items: [{ id: 1, type: "av01", extents: whole(frames), properties: [1, 2] }],
    properties: [configuration, sizeProperty(64, 64)],
    references: [{ type: "auxl", from: 1, to: [1] }],
  });
}

/** 67 MB of zeros in 65 KB. */
const TILE_EDGE = 8_192;
const tile = deflateSync(Buffer.alloc(TILE_EDGE ** 2));

type Outcome = "served" | "invalid_image" | "image_too_large";

test.for<readonly [string, () => Buffer, Outcome]>([
  ["an AVIF of 64 x 64 whose frame is 8,000 x 8,000", () => oneItem(large, 64), "image_too_large"],
  [
    "an AVIF with the same frame 20 times",
    () => oneItem({ ...medium, frames: Buffer.concat(Array.from({ length: 20 }, () => medium.frames)) }, 2_000),
    "image_too_large",
  ],
  [
    "an AVIF of 64 x 64 with 9 tiles of 8,000 x 8,000",
    () => grid(large, 8_000, { rows: 3, columns: 3, edge: 64 }),
    "image_too_large",
  ],
  ["an AVIF that repeats its metadata 30 times", repeatedMetadata, "invalid_image"],
  [
    "an AVIF that is turned 200 times",
    () => oneItem(small, 64, { properties: [1, 2, ...Array.from({ length: 200 }, () => 3)] }),
    "invalid_image",
  ],
  ["an AVIF whose transparency is itself", transparentItself, "invalid_image"],
  ["an AVIF that is turned once", () => oneItem(small, 64, { properties: [1, 2, 3] }), "served"],
  ["an AVIF of 2 x 2 tiles", () => grid(small, 64, { rows: 2, columns: 2, edge: 128 }), "served"],
  [
    "a TIFF of 20 tiles of 67 megapixels that shows one row",
    () => tiledTiff({ width: 20 * TILE_EDGE, height: 1, tileEdge: TILE_EDGE, tile }),
    "image_too_large",
  ],
  [
    "a TIFF of a tile that is larger than the picture",
    () => tiledTiff({ width: 3, height: 2, tileEdge: 16, tile: deflateSync(Buffer.alloc(256, 9)) }),
    "served",
  ],
])("%s", async ([, make, expected]) => {
  const outcome = await decodeImage(make(), limits).then(
    () => "served",
    (error: { readonly code?: string }) => error.code,
  );
  expect(outcome).toBe(expected);
});

describe("the decoded pixels of an ordinary picture are its own", () => {
  const count = async (bytes: Buffer) => (await readPictureHeader(bytes, noLimits)).numDecodedPixels;

  test.for<readonly [string, () => Promise<Buffer>]>([
    ["AVIF", () => flat(50).avif({ effort: 0 }).toBuffer()],
    ["lossless AVIF", () => flat(50).avif({ lossless: true, effort: 0 }).toBuffer()],
    ["AVIF with less colour", () => flat(50).avif({ chromaSubsampling: "4:2:0", effort: 0 }).toBuffer()],
    ["TIFF in strips", () => flat(50).tiff().toBuffer()],
    ["PNG", () => flat(50).png().toBuffer()],
    ["JPEG", () => flat(50).jpeg().toBuffer()],
    ["WebP", () => flat(50).webp().toBuffer()],
    ["GIF", () => flat(50).gif().toBuffer()],
  ])("%s", async ([, make]) => {
    expect(await count(await make())).toBe(50 * 50);
  });

  test("except for the transparency of an AVIF, which is a picture too", async () => {
    expect(await count(await flat(50, 4).avif({ effort: 0 }).toBuffer())).toBe(2 * 50 * 50);
  });

  test("and for the parts of tiles that a TIFF does not show", async () => {
    const tiled = await flat(50).tiff({ tile: true, tileWidth: 32, tileHeight: 16 }).toBuffer();
    expect(await count(tiled)).toBe(64 * 64);
  });

  test("in an AVIF of another encoder", async () => {
    const { width, height, numDecodedPixels } = await readPictureHeader(readFixture("pictures/still.avif"), noLimits);
    expect(numDecodedPixels).toBe(width * height);
  });
});

test("an AVIF with any altered byte is decoded or rejected, and nothing else happens", async () => {
  const bytes = oneItem(small, 64);
  for (let at = 0; at < bytes.byteLength; at++) {
    const altered = Buffer.from(bytes);
    altered[at]! ^= [0x01, 0x80, 0xff][at % 3]!;
    const outcome = await readPictureHeader(altered, limits).then(
      () => "read",
      (error: { readonly code?: string }) => error.code,
    );
    expect(["read", "invalid_image", "image_too_large"]).toContain(outcome);
  }
});
