/** Parsers of texts, numbers, choices, addresses and paths. Each says what it expects. */
import { existsSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";

import { objectAddressForms, parseModelReference } from "../../engine/contract/model-reference.ts";
import type { Parser } from "./setting.ts";

const KIBIBYTE = 1024;
export const MEBIBYTE = 1024 ** 2;
export const GIBIBYTE = 1024 ** 3;

/** Any text but the empty one. */
export function anyText(): Parser<string> {
  return { expected: "some text", parse: (text) => (text === "" ? undefined : text) };
}

/** @param unit Plural, for the error: `tokens`. */
export function integer(min: number, max: number = Number.MAX_SAFE_INTEGER, unit = ""): Parser<number> {
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  return {
    expected: `an integer ${range}${unit === "" ? "" : ` ${unit}`}`,
    parse: (text) => within(/^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN, min, max),
  };
}

/** A decimal number. */
export function fraction(min: number, max: number): Parser<number> {
  return {
    expected: `a number from ${min} to ${max}`,
    parse: (text) => within(parseDecimal(text), min, max),
  };
}

/** Seconds, with fractions, as whole milliseconds. */
export function seconds(min: number, max: number): Parser<number> {
  return {
    expected: `a number of seconds from ${min} to ${max}`,
    parse: (text) => scaled(parseDecimal(text), min, max, 1000),
  };
}

/** Like `seconds`; `0` means never and parses to null. */
export function secondsOrNever(min: number, max: number): Parser<number | null> {
  const { expected, parse } = seconds(min, max);
  return { expected: `0, or ${expected}`, parse: (text) => (parseDecimal(text) === 0 ? null : parse(text)) };
}

/** GiB, with fractions, as whole bytes. */
export function gibibytes(min: number, max: number): Parser<number> {
  return {
    expected: `a number of GiB from ${min} to ${max}`,
    parse: (text) => scaled(parseDecimal(text), min, max, GIBIBYTE),
  };
}

/** Bytes, with an optional binary unit: `33554432`, `32M`, `32MiB`. */
export function bytes(min: number, max: number): Parser<number> {
  const factors = { "": 1, k: KIBIBYTE, m: MEBIBYTE, g: GIBIBYTE } as const;
  return {
    expected: `a size from ${sizeText(min)} to ${sizeText(max)}, such as 1048576 or 1MiB`,
    parse(text) {
      const match = /^(\d+)\s*([kmg]?)(?:i?b)?$/i.exec(text);
      if (match === null) return undefined;
      return within(Number(match[1]) * factors[match[2]!.toLowerCase() as keyof typeof factors], min, max);
    },
  };
}

const booleanNames: ReadonlyMap<string, boolean> = new Map([
  ["true", true],
  ["false", false],
  ["1", true],
  ["0", false],
  ["yes", true],
  ["no", false],
  ["on", true],
  ["off", false],
]);

export function boolean(): Parser<boolean> {
  return {
    expected: `one of ${[...booleanNames.keys()].join(", ")}`,
    parse: (text) => booleanNames.get(text.toLowerCase()),
  };
}

export function oneOf<const Choice extends string | number>(choices: readonly Choice[]): Parser<Choice> {
  return {
    expected: `one of ${choices.join(", ")}`,
    parse: (text) => choices.find((choice) => String(choice) === text.toLowerCase()),
  };
}

/** Entries separated by commas, white space around them ignored; at least one entry. */
export function commaSeparated(
  expected: string,
  isEntry: (entry: string) => boolean = () => true,
): Parser<readonly string[]> {
  return {
    expected,
    parse(text) {
      const entries = text.split(",").map((entry) => entry.trim());
      return entries.every((entry) => entry !== "" && isEntry(entry)) ? entries : undefined;
    },
  };
}

/** `name=value` pairs separated by commas. Values are percent-encoded. */
export function keyValues(): Parser<Readonly<Record<string, string>>> {
  return {
    expected: "name=value pairs separated by commas",
    parse(text) {
      const pairs = text.split(",").map((pair) => /^\s*([^\s=]+)\s*=\s*(.*?)\s*$/.exec(pair));
      try {
        const entries = pairs.map((match) => [match![1]!, decodeURIComponent(match![2]!)] as const);
        return Object.fromEntries(entries);
      } catch {
        return undefined;
      }
    },
  };
}

/** Values of the Origin header of a browser, or * for any. */
export function origins(): Parser<readonly string[]> {
  const isOrigin = (entry: string): boolean => entry === "*" || (isHttpUrl(entry) && new URL(entry).origin === entry);
  return commaSeparated("origins such as https://app.example.com separated by commas, or *", isOrigin);
}

export function httpUrl(): Parser<string> {
  return { expected: "an http:// or https:// URL", parse: (text) => (isHttpUrl(text) ? text : undefined) };
}

/** Keys that verify tokens must not be read over plain HTTP, except from this machine. */
export function issuerUrl(): Parser<string> {
  const isLocal = (text: string): boolean => /^(127\.\d+\.\d+\.\d+|localhost|\[::1\])$/.test(new URL(text).hostname);
  return {
    expected: "an https:// URL",
    parse: (text) => (isHttpUrl(text) && (/^https:/i.test(text) || isLocal(text)) ? text : undefined),
  };
}

export function redisUrl(): Parser<string> {
  return {
    expected: "a redis:// or rediss:// URL",
    parse: (text) => (/^rediss?:\/\//i.test(text) && URL.canParse(text) ? text : undefined),
  };
}

/** A path of a route, which is compared as it is: no parameters and no wildcards. */
export function routePath(): Parser<string> {
  return {
    expected: "an absolute path of letters, digits and - . _ ~ : / @, in which no part starts with a colon",
    parse: (text) => (/^(\/(?!:)[\w.~:@-]*)+$/.test(text) ? text : undefined),
  };
}

/** A path, made absolute. */
export function path(): Parser<string> {
  return { expected: "a path", parse: (text) => (text === "" ? undefined : resolve(text)) };
}

/** Folders, separated as in PATH and made absolute. */
export function searchPath(): Parser<readonly string[]> {
  return {
    expected: "folders separated by colons",
    parse: (text) =>
      text
        .split(":")
        .filter((folder) => folder !== "")
        .map((folder) => (isAbsolute(folder) ? folder : resolve(folder))),
  };
}

/** A checkpoint: a folder, made absolute, an address in an object store, or a repository of the hub if no such folder exists. */
export function checkpointReference(): Parser<string> {
  return {
    expected: `the folder of a checkpoint, org/name or hf://org/name@revision of a hub, or ${objectAddressForms}`,
    parse(text) {
      const reference = parseModelReference(text);
      switch (reference?.kind) {
        case "s3":
        case "gs":
        case "az":
          return reference.prefix === "" ? undefined : text;
        case "hub":
          return reference.yieldsToFolder && existsSync(text) ? resolve(text) : text;
        case "folder":
          return resolve(text);
        case undefined:
          return undefined;
      }
      return reference satisfies undefined;
    },
  };
}

/** Whether the text is a checkpoint in an object store or, unless a folder of this name exists, on the hub. */
export function isRemoteCheckpoint(text: string): boolean {
  const reference = parseModelReference(text);
  return reference !== null && reference.kind !== "folder";
}

export type BatchStoreLocation =
  | { readonly kind: "none" }
  | { readonly kind: "folder"; readonly folder: string }
  /** `prefix` has no slashes at its ends; it may be empty. */
  | { readonly kind: "s3"; readonly bucket: string; readonly prefix: string };

/** Where batches keep their files: a folder, made absolute, `s3://bucket/prefix`, or `none`. */
export function batchStore(): Parser<BatchStoreLocation> {
  return {
    expected: "a folder, s3://bucket/prefix or none",
    parse(text) {
      if (text.toLowerCase() === "none") return { kind: "none" };
      const s3 = /^s3:\/\/([^/]+)\/*(.*?)\/*$/i.exec(text);
      if (s3 !== null) return { kind: "s3", bucket: s3[1]!, prefix: s3[2]! };
      return text === "" || hasScheme(text) ? undefined : { kind: "folder", folder: resolve(text) };
    },
  };
}

/** Whether the text is `s3://bucket/prefix`, or an http(s) URL without credentials, which logs would show. */
export function isS3OrHttpUrl(text: string): boolean {
  if (/^s3:\/\/[^/\s]+(?:\/\S*)?$/i.test(text)) return true;
  if (!isHttpUrl(text)) return false;
  const { username, password } = new URL(text);
  return username === "" && password === "";
}

/** The URL of a service; its scheme says of which kind. A name of a kind alone is short for `name://`. */
export function serviceAddress(): Parser<string> {
  return {
    expected: "an address such as sqs://host/account/queue",
    parse(text) {
      const address = /^[a-z]+$/i.test(text) ? `${text}://` : text;
      return hasScheme(address) && URL.canParse(address) ? address : undefined;
    },
  };
}

/** The key of Standard Webhooks: `whsec_` and Base64 of 24 to 64 bytes. */
export function webhookSecret(): Parser<Buffer> {
  return {
    expected: "whsec_ and Base64 of 24 to 64 bytes",
    parse(text) {
      const match = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(text);
      const secret = Buffer.from(match?.[1] ?? "", "base64");
      return secret.length >= 24 && secret.length <= 64 ? secret : undefined;
    },
  };
}

/** In the largest unit that divides it. */
function sizeText(numBytes: number): string {
  if (numBytes % GIBIBYTE === 0) return `${numBytes / GIBIBYTE}GiB`;
  return numBytes % MEBIBYTE === 0 ? `${numBytes / MEBIBYTE}MiB` : `${numBytes / KIBIBYTE}KiB`;
}

function parseDecimal(text: string): number {
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
}

function scaled(value: number, min: number, max: number, factor: number): number | undefined {
  return within(value, min, max) === undefined ? undefined : Math.round(value * factor);
}

function within(value: number, min: number, max: number): number | undefined {
  return value >= min && value <= max ? value : undefined;
}

function hasScheme(text: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(text);
}

function isHttpUrl(text: string): boolean {
  return /^https?:\/\//i.test(text) && URL.canParse(text);
}
