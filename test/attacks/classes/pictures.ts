import { deflateSync } from "node:zlib";
import * as fc from "fast-check";
import sharp from "sharp";
import type { Sharp } from "sharp";

import { writePng } from "../../engine/images/computed-picture.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { MAX_PICTURES, prepareWeb } from "../web-surroundings.ts";

/** Creates a picture when it is first sent. */
type Maker = () => Promise<Buffer>;

interface Size {
  readonly width: number;
  readonly height: number;
}

/** Computed noise: it compresses badly and is the same each time. */
function noise({ width, height }: Size, channels: 3 | 4): Sharp {
  const data = Buffer.alloc(width * height * channels);
  for (let at = 0; at < data.byteLength; at++) data[at] = (at * 7919) ^ (at >> 5);
  return sharp(data, { raw: { width, height, channels } });
}

const usual: Size = { width: 48, height: 40 };
const sizes: readonly Size[] = [
  usual,
  { width: 1, height: 1 },
  { width: 1, height: 3000 },
  { width: 3000, height: 1 },
  { width: 300, height: 200 },
];

const formats: Readonly<Record<string, (picture: Sharp) => Sharp>> = {
  PNG: (picture) => picture.png(),
  "interlaced PNG": (picture) => picture.png({ progressive: true }),
  "PNG with a palette": (picture) => picture.png({ palette: true, colours: 4 }),
  "16-bit PNG": (picture) => picture.toColourspace("rgb16").png(),
  "grey PNG": (picture) => picture.toColourspace("b-w").png(),
  JPEG: (picture) => picture.jpeg(),
  "progressive JPEG": (picture) => picture.jpeg({ progressive: true }),
  "CMYK JPEG": (picture) => picture.toColourspace("cmyk").jpeg(),
  "turned JPEG": (picture) => picture.withMetadata({ orientation: 6 }).jpeg(),
  WebP: (picture) => picture.webp(),
  "lossless WebP": (picture) => picture.webp({ lossless: true }),
  GIF: (picture) => picture.gif(),
  TIFF: (picture) => picture.tiff(),
  AVIF: (picture) => picture.avif({ effort: 0 }),
};

/** Few bytes, many pixels. */
const largeMakers: Readonly<Record<string, Maker>> = {
  "PNG of 3000 x 3000, all one colour": () => flatPng({ width: 3000, height: 3000 }, 8),
  "16-bit PNG of 3000 x 3000, all one colour": () => flatPng({ width: 3000, height: 3000 }, 16),
  "AVIF of 5000 x 5000, all one colour": () => flat({ width: 5000, height: 5000 }).avif({ effort: 0 }).toBuffer(),
  "WebP of 3000 x 3000, all one colour": () => flat({ width: 3000, height: 3000 }).webp({ effort: 0 }).toBuffer(),
};

/** Formats that contain scripts or references, or with unnecessary decoders. */
const unservedMakers: Readonly<Record<string, Maker>> = {
  SVG: async () =>
    Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'),
  "SVG that includes a file": async () =>
    Buffer.from(
      '<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/hostname">]><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text>&a;</text><image href="file:///etc/hostname"/></svg>',
    ),
  PDF: async () => Buffer.from("%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"),
  HTML: async () => Buffer.from("<!doctype html><img src=a>"),
  ICO: async () => Buffer.from("0000010001000101000001002000300000001600000028", "hex"),
  BMP: async () => Buffer.from("424d3a000000000000003600000028000000010000000100000001001800", "hex"),
  "MVG script": async () =>
    Buffer.from("push graphic-context\nimage over 0,0 0,0 'http://127.0.0.1:1/'\npop graphic-context"),
  EXR: async () => Buffer.from("762f3101020000006368616e6e656c7300", "hex"),
  "JPEG XL": async () => Buffer.from("ff0a000000", "hex"),
  "HEIF without pictures": async () => Buffer.from("00000018667479706865696300000000686569636d696631", "hex"),
};

/** Small pictures of every format, and some that are larger than they look. */
const makers: Readonly<Record<string, Maker>> = {
  ...Object.fromEntries(
    Object.entries(formats).flatMap(([name, encode]) =>
      sizes.map(({ width, height }): [string, Maker] => [
        `${name} of ${width} x ${height}`,
        () => encode(noise({ width, height }, name.includes("JPEG") ? 3 : 4)).toBuffer(),
      ]),
    ),
  ),
  ...largeMakers,
  "GIF of 100 frames": async () =>
    sharp(Buffer.alloc(64 * 6400 * 3, 7), { raw: { width: 64, height: 6400, channels: 3, pageHeight: 64 } })
      .gif()
      .toBuffer(),
  "PNG whose header says 50000 x 50000": async () => headerOf({ width: 50_000, height: 50_000 }),
  "PNG whose header says 0 x 0": async () => headerOf({ width: 0, height: 0 }),
  "PNG whose header says 8000 x 8000": async () => headerOf({ width: 8000, height: 8000 }),
  "PNG whose header says 2^31 x 1": async () => headerOf({ width: 2 ** 31, height: 1 }),
  "PNG with more pixels than its header says": async () =>
    writePng({ width: 8, height: 8, bitDepth: 8, colourType: "rgb" }, deflateSync(Buffer.alloc(2 ** 22))),
  ...unservedMakers,
  nothing: async () => Buffer.alloc(0),
};

function flat({ width, height }: Size): Sharp {
  return sharp({ create: { width, height, channels: 3, background: "red" } });
}

async function flatPng(size: Size, bitDepth: 8 | 16): Promise<Buffer> {
  const rows = Buffer.alloc(size.height * (1 + (size.width * 3 * bitDepth) / 8));
  return writePng({ ...size, bitDepth, colourType: "rgb" }, deflateSync(rows, { level: 1 }));
}

function headerOf(size: Size): Buffer {
  return writePng({ ...size, bitDepth: 8, colourType: "rgb" }, deflateSync(Buffer.alloc(1000)));
}

const made = new Map<string, Promise<Buffer>>();
function make(name: string): Promise<Buffer> {
  const known = made.get(name);
  if (known !== undefined) return known;
  const making = makers[name]!();
  made.set(name, making);
  return making;
}

/** A change of a picture's bytes. */
type Damage = readonly [name: string, damage: (bytes: Buffer) => Buffer];

const damage: fc.Arbitrary<Damage> = fc.oneof(
  fc.nat(999).map((share): Damage => [`cut after ${share} ‰`, (bytes) => bytes.subarray(0, at(bytes, share))]),
  fc
    .array(fc.tuple(fc.nat(999), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 6 })
    .map((flips): Damage => [
      `changed at ${flips.map(([share]) => share).join(", ")} ‰`,
      (bytes) => {
        const changed = Buffer.from(bytes);
        if (changed.byteLength > 0) for (const [share, mask] of flips) changed[at(bytes, share)]! ^= mask;
        return changed;
      },
    ]),
  // The first bytes contain the picture's size and structure.
  fc
    .tuple(fc.nat(40), fc.constantFrom(0, 0x7f, 0x80, 0xff))
    .map(([index, byte]): Damage => [
      `with ${byte} at ${index}`,
      (bytes) => Buffer.from(bytes.map((own, position) => (position === index ? byte : own))),
    ]),
  fc
    .tuple(fc.nat(999), fc.nat(999), fc.nat(999))
    .map(([from, to, into]): Damage => [
      `${from} to ${to} ‰ again at ${into} ‰`,
      (bytes) =>
        Buffer.concat([
          bytes.subarray(0, at(bytes, into)),
          bytes.subarray(at(bytes, Math.min(from, to)), at(bytes, Math.max(from, to))),
          bytes.subarray(at(bytes, into)),
        ]),
    ]),
  fc.constant<Damage>(["with a megabyte behind", (bytes) => Buffer.concat([bytes, Buffer.alloc(2 ** 20)])]),
  fc.constant<Damage>(["behind text", (bytes) => Buffer.concat([Buffer.from("GIF89a?<script>"), bytes])]),
);

function at(bytes: Buffer, share: number): number {
  return Math.floor((bytes.byteLength * share) / 1000);
}

/** Ways to write the picture as a reference. */
const references: Readonly<Record<string, (base64: string) => string>> = {
  "data:image/png": (base64) => `data:image/png;base64,${base64}`,
  "data:image/jpeg": (base64) => `data:image/jpeg;base64,${base64}`,
  "data:text/html": (base64) => `data:text/html;base64,${base64}`,
  "data: without a type": (base64) => `data:;base64,${base64}`,
  "data: with parameters": (base64) => `data:image/png;charset=utf-8;a=b;base64,${base64}`,
  "URL-safe base64": (base64) => `data:image/png;base64,${base64.replaceAll("+", "-").replaceAll("/", "_")}`,
  "base64 without padding": (base64) => `data:image/png;base64,${base64.replaceAll("=", "")}`,
  "base64 with line ends": (base64) => `data:image/png;base64,${base64.replaceAll(/.{60}/g, "$&\r\n")}`,
  "base64 with a stranger": (base64) => `data:image/png;base64,${base64.slice(0, 40)}*${base64.slice(40)}`,
  "per cent": (base64) => `data:image/png,${base64.replaceAll(/[+/=]/g, encodeURIComponent)}`,
};

const damaged: fc.Arbitrary<Attack> = fc
  .array(
    fc.record({
      picture: fc.constantFrom(...Object.keys(makers)),
      damages: fc.oneof(fc.constant([]), fc.array(damage, { maxLength: 2 })),
      reference: fc.oneof(
        { weight: 6, arbitrary: fc.constant("data:image/png") },
        { weight: 1, arbitrary: fc.constantFrom(...Object.keys(references)) },
      ),
    }),
    { minLength: 1, maxLength: 2 },
  )
  .map(createAttack);

/** As many new pictures as a request may have. */
const large: fc.Arbitrary<Attack> = fc
  .tuple(fc.constantFrom(...Object.keys(largeMakers)), fc.integer({ min: 1, max: MAX_PICTURES }), fc.nat())
  .map(([picture, count, salt]) =>
    createAttack(
      Array.from({ length: count }, (_, index) => ({
        picture,
        damages: [
          [`with ${salt + index} behind`, (bytes) => Buffer.concat([bytes, Buffer.from(String(salt + index))])],
        ],
        reference: "data:image/png",
      })),
    ),
  );

/** Pictures that are damaged, mislabelled, or far larger than their bytes. */
export const pictures: AttackClass = {
  name: "pictures",
  title: "Pictures that are damaged, disguised or larger than they look",
  numCases: 48,
  routes: ["POST /v1/chat/completions"],
  prepare: prepareWeb,
  attacks: () => fc.oneof({ weight: 20, arbitrary: damaged }, { weight: 1, arbitrary: large }),
  groupSize: 4,
  // A picture of the maximum size takes seconds, and the total per request is limited.
  maxCpuSeconds: 4,
};

interface DamagedPicture {
  readonly picture: string;
  readonly damages: readonly Damage[];
  readonly reference: string;
}

function createAttack(chosen: readonly DamagedPicture[]): Attack {
  const label = chosen
    .map(({ picture, damages, reference }) => [picture, ...damages.map(([name]) => name), reference].join(", "))
    .join(" + ");
  return {
    route: "POST /v1/chat/completions",
    label,
    shown: label,
    async run(wire) {
      const urls = await Promise.all(chosen.map(toUrl));
      const content = urls.map((url) => ({ type: "image_url", image_url: { url } }));
      const answer = await wire.sendJson("/v1/chat/completions", {
        messages: [{ role: "user", content }],
        max_tokens: 1,
      });
      const unserved = chosen.find(({ picture }) => picture in unservedMakers);
      if (unserved && answer.status < 400)
        throw new Error(`${unserved.picture} is served, a format that must be refused.`);
      return [answer];
    },
  };
}

async function toUrl({ picture, damages, reference }: DamagedPicture): Promise<string> {
  const bytes = damages.reduce((damaged, [, apply]) => apply(damaged), await make(picture));
  return references[reference]!(bytes.toString("base64"));
}
