import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { deflateSync } from "node:zlib";
import sharp from "sharp";
import { describe, expect, test } from "vitest";

import { defaultDecodeLimits } from "../../../engine/contract/default-limits.ts";
import { decodeImage } from "../../../engine/images/decode-image.ts";
import { computePicture, encodePng, writePng } from "./computed-picture.ts";

interface DecodedGolden {
  readonly file: string;
  readonly width: number;
  readonly height: number;
  /** Base64 of [height, width, 3]. */
  readonly rgb: string;
}

const fixtures = new URL("../../fixtures/pixels/", import.meta.url);
const goldens = JSON.parse(readFileSync(new URL("decoded.json", fixtures), "utf8")) as readonly DecodedGolden[];
const readPicture = (name: string): Buffer => readFileSync(new URL(`pictures/${name}`, fixtures));
const limits = { ...defaultDecodeLimits, maxImagePixels: 1_000_000 };

/**
 * Largest difference of any value. Lossy decoders may round differently; AVIF's decoders upsample colour differently.
 */
function toleranceOf(file: string): number {
  if (file.endsWith(".avif")) return 24;
  return /\.jpg$|^lossy\.webp$/.test(file) ? 2 : 0;
}

describe("a decoded picture equals Pillow's with Hugging Face's convert_to_rgb", () => {
  test("every stored picture has a golden", () => {
    expect(goldens.map(({ file }) => file)).toEqual(readdirSync(new URL("pictures/", fixtures)).sort());
  });

  test.for(goldens)("$file", async ({ file, width, height, rgb }) => {
    const decoded = await decodeImage(readPicture(file), limits);
    expect([decoded.width, decoded.height]).toEqual([width, height]);
    const expected = Buffer.from(rgb, "base64");
    expect(decoded.data.byteLength).toBe(expected.byteLength);
    const differences = expected.map((value, index) => Math.abs(value - decoded.data[index]!));
    expect(Math.max(...differences)).toBeLessThanOrEqual(toleranceOf(file));
  });
});

test("limits of infinity and of fractions are accepted", async () => {
  const none = { maxImagePixels: Infinity, maxDecodeCost: Infinity, decodeTimeoutMs: Infinity };
  const fractions = { maxImagePixels: 1e6 + 0.5, maxDecodeCost: 1e8 + 0.5, decodeTimeoutMs: 1e12 + 0.5 };
  const expected = await decodeImage(readPicture("lossless.webp"), limits);
  for (const given of [none, fractions])
    expect(await decodeImage(readPicture("lossless.webp"), given)).toEqual(expected);
});

test("only the first frame of an animated WebP is used", async () => {
  expect(await decodeImage(readPicture("animated.webp"), limits)).toEqual(
    await decodeImage(readPicture("lossless.webp"), limits),
  );
});

test("a GIF named PNG is decoded by its content", async () => {
  expect(await decodeImage(readPicture("gif-called.png"), limits)).toEqual(
    await decodeImage(readPicture("still.gif"), limits),
  );
});

test("an AVIF is known by any of its brands, which tell it from HEIC", async () => {
  const branded = (...brands: readonly string[]): Buffer => {
    const picture = readPicture("still.avif");
    const rest = picture.subarray(picture.readUInt32BE(0));
    const [major = "", ...compatible] = brands;
    const box = Buffer.from(`\0\0\0\0ftyp${major}\0\0\0\0${compatible.join("")}`, "latin1");
    box.writeUInt32BE(box.byteLength);
    // The places of the data count from the start of the file.
    const filler = Buffer.alloc(picture.byteLength - rest.byteLength - box.byteLength);
    filler.writeUInt32BE(filler.byteLength);
    filler.write("free", 4, "latin1");
    return Buffer.concat([box, filler, rest]);
  };
  const whole = await decodeImage(readPicture("still.avif"), limits);
  expect(await decodeImage(branded("mif1", "avif"), limits)).toEqual(whole);
  // An animation, whose frames follow in a box of their own.
  const frames = Buffer.from("\0\0\0\x10moovnoframes", "latin1");
  const largeFrames = Buffer.from("\0\0\0\x01moov\0\0\0\0\0\0\0\x18noframes", "latin1");
  for (const brands of [
    ["avis", "avif", "msf1"],
    ["avif", "avis"],
  ]) {
    for (const box of [frames, largeFrames]) {
      expect(await decodeImage(Buffer.concat([branded(...brands), box]), limits)).toEqual(whole);
    }
  }
  for (const brands of [["mif1", "heic"], ["heic", "mif1"], ["mif1"]]) {
    await expect(decodeImage(branded(...brands), limits)).rejects.toThrow(/is a HEIC or HEIF file/);
  }
});

test("16-bit grey becomes its high byte, where Pillow clips everything above 255 to white", async () => {
  const row = Buffer.from([0, 0x00, 0xff, 0x12, 0x34, 0xff, 0x01]);
  const png = writePng({ width: 3, height: 1, bitDepth: 16, colourType: "grey" }, deflateSync(row));
  const { data } = await decodeImage(png, limits);
  expect([...data]).toEqual([0, 0, 0, 0x12, 0x12, 0x12, 0xff, 0xff, 0xff]);
});

test.for([
  ["one pixel more than the limit", 1_001, 1_000],
  ["50,000 x 50,000", 50_000, 50_000],
  ["more pixels than 32 bits count", 999_999, 999_999],
] as const)("a PNG header of %s is rejected before any pixel is decoded", async ([, width, height]) => {
  const png = writePng({ width, height, bitDepth: 8, colourType: "rgb" }, new Uint8Array(0));
  await expect(decodeImage(png, limits)).rejects.toMatchObject({
    code: "image_too_large",
    message: `The image has ${width}x${height} = ${width * height} pixels; the limit is 1000000.`,
  });
});

test("a picture exactly at the limit is decoded", async () => {
  const picture = computePicture("photo", 50, 20);
  expect(await decodeImage(encodePng(picture), { ...limits, maxImagePixels: 1_000 })).toEqual({
    ...picture,
    data: Buffer.from(picture.data),
  });
});

const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="file:///etc/passwd"/></svg>`;

test.for([
  ["no bytes", "", "The 0 bytes are not a picture in a supported format:"],
  ["an SVG", svg, "The image is an SVG or another XML file."],
  ["an SVG with a declaration", `<?xml version="1.0"?>\n${svg}`, "The image is an SVG or another XML file."],
  ["an SVG after a byte order mark", `\ufeff${svg}`, "The image is an SVG or another XML file."],
  ["a PDF", "%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj", "The image is a PDF file."],
  ["a web page", "<!doctype html><title>Not found</title>", "The image is an HTML page."],
  ["a message of a server", '{"error": "Not found"}', "The image is a JSON text."],
  ["a BMP", "BM\x46\x00\x00\x00", "The image is a BMP file."],
  ["a photo of a phone", "\0\0\0\x18ftypheic\0\0\0\0mif1heic", "The image is a HEIC or HEIF file."],
  ["a film", "\0\0\0\x18ftypmp42\0\0\0\0isommp42", "The image is a video."],
  ["JPEG XL", "\0\0\0\x0cJXL \r\n", "The image is a JPEG XL file."],
  ["PostScript", "%!PS-Adobe-3.0 EPSF-3.0", "The image is a PostScript file."],
  ["an archive", "PK\x03\x04\x14\0", "The image is a ZIP archive or an office document."],
  [
    "an ImageMagick script",
    "push graphic-context\nimage over 0,0 0,0 'https://127.0.0.1/'\n",
    "bytes are not a picture in a supported format:",
  ],
  ["base64", "iVBORw0KGgo=", "The image is encoded in base64 twice."],
] as const)("%s is not a picture, and is named", async ([, text, reason]) => {
  await expect(decodeImage(Buffer.from(text), limits)).rejects.toMatchObject({
    code: "invalid_image",
    message: expect.stringMatching(/ png, jpeg, webp, gif, avif, tiff\.$/),
  });
  await expect(decodeImage(Buffer.from(text), limits)).rejects.toThrow(reason);
});

test.for([
  "rgb.png",
  "baseline.jpg",
  "progressive.jpg",
  "cmyk.jpg",
  "lossy.webp",
  "lossless.webp",
  "still.gif",
  "lzw.tif",
  "still.avif",
])("%s truncated anywhere is reported as broken, in our own words", async (name) => {
  const whole = readPicture(name);
  for (const share of [0.1, 0.3, 0.6, 0.9]) {
    const cut = whole.subarray(0, Math.max(Math.floor(whole.byteLength * share), 16));
    await expect(decodeImage(cut, limits)).rejects.toMatchObject({
      code: "invalid_image",
      message: expect.stringMatching(/^The (png|jpeg|webp|gif|tiff|avif) picture is broken or incomplete\.$/),
    });
  }
});

const [COMPRESSION, COLOURS] = [259, 262];

/** The TIFF with other numbers in its tags. */
function withTags(tiff: Buffer, values: Readonly<Record<number, number>>): Buffer {
  const changed = Buffer.from(tiff);
  const directory = tiff.readUInt32LE(4);
  for (let entry = 0; entry < tiff.readUInt16LE(directory); entry++) {
    const at = directory + 2 + entry * 12;
    const value = values[tiff.readUInt16LE(at)];
    if (value !== undefined) changed.writeUInt16LE(value, at + 8);
  }
  return changed;
}

test.for([
  ["YCbCr without a compression", { [COLOURS]: 6 }, /has YCbCr colours without being compressed as JPEG\. That is not/],
  ["YCbCr with LZW", { [COLOURS]: 6, [COMPRESSION]: 5 }, /has YCbCr colours without being compressed as JPEG/],
  [
    "Zstandard",
    { [COMPRESSION]: 50000 },
    /is compressed with Zstandard\. That is not supported: save it as RGB with LZW/,
  ],
  ["LZMA", { [COMPRESSION]: 34925 }, /is compressed with LZMA/],
  ["Lab of 8 bits", { [COLOURS]: 8 }, /has Lab colours/],
  ["raw values", { [COLOURS]: 32803 }, /has raw values of a camera's sensor/],
  ["a compression without a name", { [COMPRESSION]: 12345 }, /is broken or incomplete/],
] as const)("a TIFF with %s is rejected with the reason", async ([, tags, reason]) => {
  const plain = readPicture("plain.tif");
  expect(withTags(plain, { [COMPRESSION]: 1, [COLOURS]: 2 })).toEqual(plain);
  await expect(decodeImage(withTags(plain, tags), limits)).rejects.toMatchObject({
    code: "invalid_image",
    message: expect.stringMatching(reason),
  });
});

test.for([4, 5, 7, 8, 9])("a TIFF of %i bytes is reported as broken", async (length) => {
  await expect(decodeImage(readPicture("plain.tif").subarray(0, length), limits)).rejects.toMatchObject({
    code: "invalid_image",
    message: "The tiff picture is broken or incomplete.",
  });
});

test("pictures with noise after their first bytes are reported or decoded, and the next one is correct", async () => {
  for (const name of ["rgb.png", "baseline.jpg", "lossy.webp", "animated.gif", "plain.tif", "still.avif"]) {
    const whole = readPicture(name);
    for (let seed = 1; seed <= 12; seed++) {
      const bytes = Buffer.from(whole);
      for (let index = 12 + seed; index < bytes.length; index += 7 * seed) bytes[index]! ^= seed * 37;
      const outcome = await decodeImage(bytes, limits).then(
        ({ width, height, data }) => data.byteLength === width * height * 3,
        (error: unknown) => (error as { code?: string }).code,
      );
      expect([true, "invalid_image", "image_too_large"]).toContain(outcome);
    }
  }
  expect((await decodeImage(readPicture("rgb.png"), limits)).width).toBe(23);
});

test("a picture is decoded while another thread starts to decode", async () => {
  const jpeg = readPicture("baseline.jpg");
  const expected = await decodeImage(jpeg, limits);
  for (let thread = 0; thread < 8; thread++) {
    const worker = new Worker(new URL("../../../engine/images/pixel-worker.ts", import.meta.url));
    const ended = once(worker, "exit").then(() => null);
    for (;;) {
      const decoded = await Promise.race([ended, decodeImage(jpeg, limits)]);
      if (decoded === null) break;
      expect(decoded).toEqual(expected);
    }
  }
});

test("the decoding library itself rejects an SVG", async () => {
  await expect(sharp(Buffer.from(svg)).metadata()).rejects.toThrow("unsupported image format");
});
