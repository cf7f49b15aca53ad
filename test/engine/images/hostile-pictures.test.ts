/** Malicious pictures: each is decoded or rejected within its limits, and the picture after it is correct. */
import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import sharp from "sharp";
import type { Sharp } from "sharp";
import { describe, expect, test } from "vitest";

import { defaultDecodeLimits } from "../../../engine/contract/default-limits.ts";
import { barePicture } from "../../../engine/images/bare-picture.ts";
import { decodeCostOf } from "../../../engine/images/decode-cost.ts";
import { decodeImage, readPictureHeader } from "../../../engine/images/decode-image.ts";
import { blankPng, computePicture, encodePng, writePng } from "./computed-picture.ts";
import {
  absurdExif,
  animatedWebp,
  manyFramesGif,
  manyPagesTiff,
  manyScansJpeg,
  withSegments,
} from "./hostile-pictures.ts";

/** The service's limits. */
const limits = { ...defaultDecodeLimits, maxImagePixels: 67_108_864 };
const noLimits = { maxImagePixels: Number.MAX_SAFE_INTEGER, maxDecodeCost: Number.POSITIVE_INFINITY };

const readPicture = (name: string): Buffer =>
  readFileSync(new URL(`../../fixtures/pixels/pictures/${name}`, import.meta.url));

function flat(width: number, height: number): Sharp {
  return sharp({ create: { width, height, channels: 3, background: { r: 200, g: 10, b: 30 } } });
}

const jpeg = await flat(64, 48).jpeg().toBuffer();
const webp = await flat(16, 16).webp({ lossless: true }).toBuffer();
const avif = await flat(64, 64).avif({ effort: 0 }).toBuffer();
const small = { width: 8, height: 8, bitDepth: 8, colourType: "rgb" } as const;
/** 64 MiB of zeros in 64 KiB. */
const bomb = deflateSync(Buffer.alloc(2 ** 26), { level: 9 });
const text = (content: Uint8Array) => Buffer.concat([Buffer.from("Comment\0\0"), content]);

type Outcome = "served" | "invalid_image" | "image_too_large";

const hostile: readonly (readonly [string, () => Buffer | Promise<Buffer>, Outcome])[] = [
  ["a WebP of 10,000 frames", () => animatedWebp(webp, 16, 10_000), "served"],
  ["a WebP of 10,000 frames, cut off", () => animatedWebp(webp, 16, 10_000).subarray(0, -5), "invalid_image"],
  ["a WebP whose first frame is cut off", () => animatedWebp(webp, 16, 2).subarray(0, 60), "invalid_image"],
  ["a WebP of 2,000 x 2,000 with a frame of 16 x 16", () => animatedWebp(webp, 2_000, 2), "served"],
  ["a GIF of 10,000 frames", () => manyFramesGif(500, 10_000), "served"],
  ["a GIF of 65,535 x 65,535", () => manyFramesGif(65_535, 1), "served"],
  ["a TIFF of 10,000 pages", () => manyPagesTiff(10_000), "served"],
  ["a TIFF whose last page points to the first", () => manyPagesTiff(3, true), "served"],
  ["a TIFF whose first page lies beyond the end", () => patched(manyPagesTiff(1), 4, 0xffff_fff0), "invalid_image"],
  ["a TIFF of 60,000 columns and no data for them", () => patched(manyPagesTiff(1), 18, 60_000), "invalid_image"],
  ["a TIFF that says it has 65,535 fields", () => patched(manyPagesTiff(1), 8, 0xffff_ffff), "invalid_image"],
  ["a JPEG of 883 scans, 8,000 x 8,000", () => manyScansJpeg(8_000, 883), "image_too_large"],
  ["a JPEG of 883 scans, 80 x 80", () => manyScansJpeg(80, 883), "served"],
  ["a JPEG with 20,000 markers", () => withSegments(jpeg, 0xe2, repeated(Buffer.from("a"), 20_000)), "served"],
  ["a JPEG with 1 MiB of comments", () => withSegments(jpeg, 0xfe, repeated(Buffer.alloc(65_000), 16)), "served"],
  ["a JPEG with 5,000 EXIF entries", () => withSegments(jpeg, 0xe1, [absurdExif(5_000)]), "served"],
  ["a JPEG with EXIF 60 times", () => withSegments(jpeg, 0xe1, repeated(absurdExif(5_000), 60)), "served"],
  [
    "a JPEG with an orientation of 77",
    () =>
      flat(64, 48)
        .withMetadata({ orientation: 8 })
        .jpeg()
        .toBuffer()
        .then((bytes) => patchedOrientation(bytes, 77)),
    "served",
  ],
  [
    "a JPEG with a profile of noise",
    () => withSegments(jpeg, 0xe2, [Buffer.concat([Buffer.from("ICC_PROFILE\0\x01\x01"), Buffer.alloc(60_000, 7)])]),
    "served",
  ],
  ["a JPEG of 65,500 x 1", () => flat(65_500, 1).jpeg().toBuffer(), "served"],
  ["a JPEG that says it has 65,500 x 65,500 pixels", () => patchedJpegSize(jpeg, 65_500), "image_too_large"],
  ["a PNG with 64 MiB of text in 64 KiB", () => blankPng(small, [["zTXt", text(bomb)]]), "served"],
  ["a PNG with 200 such texts", () => blankPng(small, repeated(["zTXt", text(bomb)], 200)), "served"],
  ["a PNG with 20,000 texts", () => blankPng(small, numbered(20_000)), "served"],
  ["a PNG with 10 MB of text", () => blankPng(small, [["tEXt", text(Buffer.alloc(1e7, 97))]]), "served"],
  ["a PNG with a profile of 64 MiB in 64 KiB", () => blankPng(small, [["iCCP", text(bomb)]]), "served"],
  ["a PNG with more pixels than its header says", () => writePng(small, bomb), "served"],
  [
    "a PNG with fewer pixels than its header says",
    () => writePng(small, deflateSync(Buffer.alloc(9))),
    "invalid_image",
  ],
  ["a PNG of 0 x 8", () => writePng({ ...small, width: 0 }, deflateSync(Buffer.alloc(9))), "invalid_image"],
  ["a PNG with a palette of two and pixels of 255", () => palettePng(), "served"],
  ["a PNG without its palette", () => blankPng({ ...small, colourType: "palette" }), "invalid_image"],
  ["a PNG of 1 x 100,000", () => blankPng({ ...small, width: 1, height: 100_000 }), "served"],
  ["a PNG of 100,000 x 1", () => blankPng({ ...small, width: 100_000, height: 1 }), "served"],
  [
    "a PNG of 1 x 20,000,000",
    () => blankPng({ ...small, colourType: "grey", width: 1, height: 2e7 }),
    "image_too_large",
  ],
  [
    "a PNG of 1 bit and 8,000 x 8,000",
    () => blankPng({ width: 8_000, height: 8_000, bitDepth: 1, colourType: "grey" }),
    "served",
  ],
  ["a PNG of 16 bits and 8,000 x 8,000", () => header(8_000, 16, "rgb-alpha"), "image_too_large"],
  ["an interlaced PNG of 8,000 x 8,000", () => header(8_000, 16, "rgb", true), "image_too_large"],
  [
    "an AVIF of 8,000 x 8,000 in 1 KiB",
    () => readFileSync(new URL("../../fixtures/pixels/8000x8000.avif", import.meta.url)),
    "image_too_large",
  ],
  [
    "an AVIF before 100,000 empty boxes",
    () => Buffer.concat([avif, ...repeated(Buffer.from("\0\0\0\x08free", "latin1"), 100_000)]),
    "served",
  ],
  ["a TIFF of floats", () => flat(40, 30).toColourspace("scrgb").tiff({ compression: "deflate" }).toBuffer(), "served"],
  ["a TIFF in CMYK", () => flat(40, 30).toColourspace("cmyk").tiff().toBuffer(), "served"],
];

function repeated<Element>(element: Element, count: number): Element[] {
  return Array.from({ length: count }, () => element);
}

function numbered(count: number): (readonly [string, Buffer])[] {
  return Array.from({ length: count }, (_, index) => ["tEXt", Buffer.from(`key${index}\0value`)] as const);
}

function patched(bytes: Buffer, at: number, value: number): Buffer {
  bytes.writeUInt32LE(value, at);
  return bytes;
}

/** In big-endian EXIF: tag 0x0112, a short. */
function patchedOrientation(bytes: Buffer, orientation: number): Buffer {
  const big = bytes.indexOf(Buffer.from([0x01, 0x12, 0, 3, 0, 0, 0, 1]));
  const little = bytes.indexOf(Buffer.from([0x12, 0x01, 3, 0, 1, 0, 0, 0]));
  expect(Math.max(big, little)).toBeGreaterThan(0);
  if (big > 0) bytes.writeUInt16BE(orientation, big + 8);
  else bytes.writeUInt16LE(orientation, little + 8);
  return bytes;
}

function patchedJpegSize(bytes: Buffer, edge: number): Buffer {
  const copy = Buffer.from(bytes);
  const frame = copy.indexOf(Buffer.from([0xff, 0xc0]));
  copy.writeUInt16BE(edge, frame + 5);
  copy.writeUInt16BE(edge, frame + 7);
  return copy;
}

function palettePng(): Buffer {
  const rows = Buffer.alloc(8 * 9, 255);
  for (let row = 0; row < 8; row++) rows[row * 9] = 0;
  return writePng({ ...small, colourType: "palette" }, deflateSync(rows), [["PLTE", Buffer.from([9, 8, 7, 6, 5, 4])]]);
}

/** Rejected by its header: there are no pixels. */
function header(edge: number, bitDepth: 8 | 16, colourType: "rgb" | "rgb-alpha", isInterlaced = false): Buffer {
  return writePng({ width: edge, height: edge, bitDepth, colourType, isInterlaced }, new Uint8Array(0));
}

describe("a hostile picture is decoded or rejected, and the next ordinary one is correct", () => {
  const ordinary = computePicture("photo", 60, 40);

  test.for(hostile)("%s: %s", async ([, make, expected]) => {
    const bytes = await make();
    const outcome = await decodeImage(bytes, limits).then(
      ({ width, height, data }) => {
        expect(data.byteLength).toBe(width * height * 3);
        return "served";
      },
      (error: { code?: string; message: string }) => {
        expect(error.message).not.toMatch(/0x[0-9a-f]{6}|node_modules|\/(home|tmp|work)\//);
        return error.code;
      },
    );
    expect(outcome).toBe(expected);
    expect(Buffer.from((await decodeImage(encodePng(ordinary), limits)).data).equals(ordinary.data)).toBe(true);
  });
});

describe("animations and files of many pages", () => {
  test("are cut to their first picture before a library reads the others", () => {
    const animation = animatedWebp(webp, 16, 10_000);
    const before = Buffer.from(animation);
    expect(barePicture(animation, "webp").byteLength).toBeLessThan(200);
    expect(animation.equals(before)).toBe(true);
    const tiff = barePicture(manyPagesTiff(3), "tiff");
    expect(Buffer.from(tiff).readUInt32LE(8 + 2 + 10 * 12)).toBe(0);
    const gif = barePicture(manyFramesGif(500, 10_000), "gif");
    expect(Buffer.from(gif).equals(manyFramesGif(500, 1))).toBe(true);
  });

  test("with one picture are not changed", () => {
    for (const [bytes, format] of [
      [webp, "webp"],
      [animatedWebp(webp, 16, 1), "webp"],
      [manyPagesTiff(1), "tiff"],
      [readPicture("lzw.tif"), "tiff"],
      [manyFramesGif(500, 1), "gif"],
      [manyFramesGif(500, 1).subarray(0, -6), "gif"],
      [readPicture("still.gif"), "gif"],
    ] as const) {
      expect(barePicture(bytes, format)).toBe(bytes);
    }
  });

  test("give the pixels of the first picture", async () => {
    const { data } = await decodeImage(manyPagesTiff(5), limits);
    expect([...data]).toEqual([200, 200, 200]);
    expect(await decodeImage(animatedWebp(webp, 16, 3), limits)).toEqual(await decodeImage(webp, limits));
    const pages = { raw: { width: 32, height: 96, channels: 3, pageHeight: 32 } } as const;
    const frames = Buffer.alloc(32 * 96 * 3, 0).fill(200, 0, 32 * 32 * 3);
    const animation = await sharp(frames, pages)
      .gif({ delay: [50, 50, 50], loop: 2 })
      .toBuffer();
    expect(barePicture(animation, "gif").byteLength).toBeLessThan(animation.byteLength);
    const first = await decodeImage(animation, limits);
    expect(first).toMatchObject({ width: 32, height: 32 });
    expect(Buffer.from(first.data).equals(Buffer.alloc(32 * 32 * 3, 200))).toBe(true);
  });
});

test.for([
  ["an ordinary JPEG", () => jpeg, 1],
  ["a progressive JPEG", () => readPicture("progressive.jpg"), 10],
  ["a JPEG of 883 scans", () => manyScansJpeg(16, 883), 883],
  [
    "a JPEG with another in its EXIF and one behind it",
    () => Buffer.concat([withSegments(jpeg, 0xe1, [manyScansJpeg(16, 50)]), manyScansJpeg(16, 50)]),
    1,
  ],
] as const)("%s: its scans are counted", async ([, make, numScans]) => {
  expect((await readPictureHeader(make(), noLimits)).numPasses).toBe(numScans);
});

test("a picture that takes longer than the time limit is rejected with the limit, between two rows", async () => {
  const slow = blankPng({ width: 1, height: 30_000_000, bitDepth: 8, colourType: "grey" });
  await expect(decodeImage(slow, { ...noLimits, decodeTimeoutMs: 1_000 })).rejects.toMatchObject({
    code: "image_too_large",
    setting: "decodeTimeoutMs",
    message: expect.stringMatching(/took longer than the limit of 1000 ms/),
  });
});

describe("decoding costs", () => {
  const photo = { channels: 3, bits: 8, passes: 1, bytesPerPixel: 0.4 };
  const cost = (
    format: "jpeg" | "png" | "webp" | "avif",
    width: number,
    height: number,
    { channels, bits, passes, bytesPerPixel }: typeof photo = photo,
  ): number =>
    decodeCostOf({
      format,
      width,
      height,
      numDecodedPixels: width * height,
      shownSize: { width, height },
      numChannels: channels,
      bitsPerSample: bits,
      isCmyk: false,
      numPasses: passes,
      numBytes: width * height * bytesPerPixel,
    });

  test("leave room for ordinary photographs", () => {
    const photographs = [
      cost("jpeg", 8_688, 5_792),
      cost("jpeg", 8_688, 5_792, { ...photo, passes: 12 }),
      cost("png", 4_032, 3_024, { ...photo, bits: 16 }),
      cost("png", 8_256, 5_504, { ...photo, bits: 16 }),
      cost("png", 6_000, 4_000, { ...photo, channels: 4, passes: 2 }),
      cost("webp", 8_000, 6_000, { ...photo, bytesPerPixel: 0.1 }),
      cost("avif", 6_000, 4_000, { ...photo, bytesPerPixel: 0.1 }),
      cost("avif", 4_032, 3_024, { ...photo, bits: 12, bytesPerPixel: 0.1 }),
    ];
    for (const one of photographs) expect(one).toBeLessThanOrEqual(defaultDecodeLimits.maxDecodeCost);
  });

  test("allow a request sixteen photographs of 12 megapixels, progressive or not, but not sixteen of 16 bits and 24", () => {
    const { maxRequestDecodeCost } = defaultDecodeLimits;
    expect(16 * cost("jpeg", 4_032, 3_024, { ...photo, passes: 11 })).toBeLessThan(maxRequestDecodeCost);
    expect(16 * cost("png", 6_000, 4_000, { ...photo, bits: 16 })).toBeGreaterThan(maxRequestDecodeCost);
  });

  test("above the limit are reported with both numbers and the setting", async () => {
    const png = header(8_000, 16, "rgb-alpha");
    await expect(decodeImage(png, limits)).rejects.toMatchObject({
      setting: "maxDecodeCost",
      message:
        "The image (png, 8000x8000 pixels of 4 x 16 bits) costs as much to decode as 170922667 pixels of plain RGB; the limit is 134217728. Send it smaller, or as a baseline JPEG.",
    });
  });

  test("are read from a picture's own header", async () => {
    const read = async (name: string) => {
      const { format, width, height, numChannels, bitsPerSample, numPasses } = await readPictureHeader(
        readPicture(name),
        noLimits,
      );
      return [format, width * height > 0, numChannels, bitsPerSample, numPasses];
    };
    expect(await read("rgb.png")).toEqual(["png", true, 3, 8, 1]);
    expect(await read("cmyk.jpg")).toEqual(["jpeg", true, 4, 8, 1]);
    expect(await read("still.avif")).toEqual(["avif", true, 3, 8, 1]);
    const deep = await readPictureHeader(header(50, 16, "rgb-alpha", true), noLimits);
    expect(deep).toMatchObject({ numChannels: 4, bitsPerSample: 16, numPasses: 2 });
  });
});
