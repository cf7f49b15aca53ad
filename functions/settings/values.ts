/** How the text of one environment variable becomes a value; every parser names what it expects. */
import { isAbsolute, resolve } from "node:path";
import { z } from "zod";

import type { LogitsProcessorReference } from "../../engine/index.ts";
import { extraArguments } from "../generation/schemas/extra-arguments.ts";

/** A string schema whose issue says what was expected; `parse` returns undefined for text it does not take. */
export function parsed<Value>(expected: string, parse: (text: string) => Value | undefined) {
  return z.string().transform((text, context): Value => {
    const value = parse(text.trim());
    if (value !== undefined) return value;
    context.addIssue({ code: "custom", message: `expected ${expected}`, input: text });
    return z.NEVER;
  });
}

export function integer(min: number, max: number = Number.MAX_SAFE_INTEGER) {
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  return parsed(`an integer ${range}`, (text) => within(/^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN, min, max));
}

/** Seconds as milliseconds; fractions are taken. */
export function seconds(min: number, max: number) {
  return parsed(`a number of seconds from ${min} to ${max}`, (text) => {
    const value = within(/^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN, min, max);
    return value === undefined ? undefined : Math.round(value * 1000);
  });
}

/** Bytes, with an optional binary unit: `33554432`, `32M`, `32MiB`. */
export function bytes(min: number, max: number) {
  const exponents = { "": 0, k: 1, m: 2, g: 3 } as const;
  return parsed(`bytes from ${min} to ${max}, such as 1048576 or 1MiB`, (text) => {
    const match = /^(\d+)\s*([kmg]?)(?:i?b)?$/i.exec(text);
    if (match === null) return undefined;
    const exponent = exponents[match[2].toLowerCase() as keyof typeof exponents];
    return within(Number(match[1]) * 1024 ** exponent, min, max);
  });
}

/** GiB as bytes; fractions are taken. */
export function gibibytes(min: number, max: number) {
  return parsed(`a number of GiB from ${min} to ${max}`, (text) => {
    const value = within(/^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN, min, max);
    return value === undefined ? undefined : Math.round(value * 1024 ** 3);
  });
}

export function oneOf<const Name extends string>(names: readonly Name[]) {
  return parsed(`one of ${names.join(", ")}`, (text) => names.find((name) => name === text.toLowerCase()));
}

/** Comma-separated, white space around entries ignored; at least one entry. */
export function commaSeparated(expected: string, isEntry: (entry: string) => boolean = () => true) {
  return parsed(expected, (text) => {
    const entries = text.split(",").map((entry) => entry.trim());
    return entries.every((entry) => entry !== "" && isEntry(entry)) ? entries : undefined;
  });
}

export function httpUrl() {
  return parsed("an http:// or https:// URL", (text) => (isHttpUrl(text) ? text : undefined));
}

export function redisUrl() {
  return parsed("a redis:// or rediss:// URL", (text) =>
    /^rediss?:\/\//i.test(text) && URL.canParse(text) ? text : undefined,
  );
}

export function path() {
  return parsed("a path", (text) => (text === "" ? undefined : resolve(text)));
}

/** Folders, separated as in PATH. */
export function searchPath() {
  return parsed("folders separated by colons", (text) =>
    text
      .split(":")
      .filter((folder) => folder !== "")
      .map((folder) => (isAbsolute(folder) ? folder : resolve(folder))),
  );
}

/** A checkpoint: a folder, made absolute, or `s3://bucket/prefix`. */
export function checkpointReference() {
  return parsed("the folder of a checkpoint or s3://bucket/prefix", (text) => {
    if (/^s3:\/\//i.test(text)) return /^s3:\/\/[^/]+\/+[^/]/i.test(text) ? text : undefined;
    if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return undefined;
    return resolve(text);
  });
}

export type BatchStoreLocation =
  | { readonly kind: "none" }
  | { readonly kind: "folder"; readonly folder: string }
  /** `prefix` has no slashes at its ends; it may be empty. */
  | { readonly kind: "s3"; readonly bucket: string; readonly prefix: string };

/** Where batches keep their files: a folder, made absolute, `s3://bucket/prefix`, or `none`. */
export function batchStore() {
  return parsed("a folder, s3://bucket/prefix or none", (text): BatchStoreLocation | undefined => {
    if (text.toLowerCase() === "none") return { kind: "none" };
    const s3 = /^s3:\/\/([^/]+)\/*(.*?)\/*$/i.exec(text);
    if (s3 !== null) return { kind: "s3", bucket: s3[1], prefix: s3[2] };
    return text === "" || /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? undefined : { kind: "folder", folder: resolve(text) };
  });
}

export interface ImagesPerPrompt {
  readonly count: number;
  readonly width?: number | undefined;
  readonly height?: number | undefined;
}

const defaultImageCount = 16;
const mostImages = z.int().min(0).max(1000);

/** Other modalities have no items here: what is set for them is taken and changes nothing. */
const limitsPerPrompt = z.looseObject({
  image: z
    .union([
      mostImages.transform((count) => ({ count })),
      z.strictObject({
        count: mostImages.default(defaultImageCount),
        width: z.int().positive().optional(),
        height: z.int().positive().optional(),
      }),
    ])
    .default({ count: defaultImageCount }),
});

/**
 * vLLM's `{"image": 4}`, `{"image": {"count": 4, "width": 512, "height": 512}}`, or its older spelling `image=4`: most
 * images of one prompt, and the largest picture to plan for.
 */
export function imagesPerPrompt() {
  const expected = '{"image": N}, {"image": {"count": N, "width": W, "height": H}} or image=N, with N from 0 to 1000';
  return parsed(expected, (text): ImagesPerPrompt | undefined => {
    const short = /^image\s*=\s*(\d+)$/.exec(text);
    const json = short === null ? parseJson(text) : { image: Number(short[1]) };
    return limitsPerPrompt.safeParse(json).data?.image;
  });
}

/** What a browser sends as Origin, or * for any. */
export function origins() {
  const isOrigin = (entry: string): boolean => entry === "*" || (isHttpUrl(entry) && new URL(entry).origin === entry);
  return commaSeparated("origins such as https://app.example.com separated by commas, or *", isOrigin);
}

const logitsProcessorList = z.array(
  z.union([
    z.string().transform((className) => ({ className, options: {} })),
    z
      .strictObject({ class: z.string(), options: z.record(z.string(), z.unknown()).default({}) })
      .transform((entry) => ({ className: entry.class, options: entry.options })),
  ]),
);

const anyObject = z.record(z.string(), z.unknown());

/** A JSON object of strings, numbers, booleans and lists of those. */
export function extraArgumentsObject() {
  return parsed(
    'a JSON object such as {"target_token": 67}, of strings, numbers, booleans and lists of those',
    (text) => {
      const result = extraArguments.safeParse(parseJson(text));
      return result.success ? result.data : undefined;
    },
  );
}

/** A JSON object of anything. */
export function jsonObject() {
  return parsed('a JSON object such as {"do_normalize": false}', (text) => anyObject.safeParse(parseJson(text)).data);
}

/**
 * Names separated by commas or white space, or a JSON array of them and of {"class", "options"}. Whether a name leads
 * anywhere the engine tells when it loads it, each with a message of its own.
 */
export function logitsProcessors() {
  const expected =
    'module:Export names separated by commas or white space, or a JSON array of such names and of {"class": name, "options": {...}}';
  return parsed(expected, (text): readonly LogitsProcessorReference[] | undefined => {
    const list = text.startsWith("[") ? parseJson(text) : text.split(/[\s,]+/).filter((name) => name !== "");
    return logitsProcessorList.safeParse(list).data;
  });
}

function within(value: number, min: number, max: number): number | undefined {
  return value >= min && value <= max ? value : undefined;
}

function isHttpUrl(text: string): boolean {
  return /^https?:\/\//i.test(text) && URL.canParse(text);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
