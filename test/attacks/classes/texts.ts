import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import * as fc from "fast-check";

import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { bodyRoutes } from "../generators/bodies.ts";
import { writeJson } from "../generators/json-tree.ts";
import { prepareForBodies } from "../surroundings.ts";

/** A named change of a body's bytes. */
type Change = readonly [name: string, change: (bytes: Buffer) => Buffer];

/** Bytes that are not UTF-8 or not JSON. */
const oddBytes = [
  Buffer.from([0xff]),
  Buffer.from([0xc0, 0xaf]),
  Buffer.from([0xed, 0xa0, 0x80]),
  Buffer.from([0xf4, 0x90, 0x80, 0x80]),
  Buffer.from([0xe2, 0x82]),
  Buffer.from([0x00]),
  Buffer.from([0xef, 0xbb, 0xbf]),
  Buffer.from([0xc2, 0xa0]),
  Buffer.from([0xe2, 0x80, 0xa8]),
  Buffer.from("\\u0000\\ud800"),
  Buffer.from("//a\n"),
  Buffer.from("/**/"),
  Buffer.from(",,"),
  Buffer.from("NaN"),
  Buffer.from('"'),
  Buffer.from("'"),
  Buffer.from("\\"),
  Buffer.from("}"),
  Buffer.from("]"),
  Buffer.from("\x1b"),
] as const;

const wholeBodies = [
  "",
  " ",
  "null",
  "true",
  "0",
  '"a"',
  "[]",
  "[{}]",
  "{}",
  "{",
  "}",
  "undefined",
  "a=b",
  "<a/>",
  "\ufeff{}",
];

const change: fc.Arbitrary<Change> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc
      .nat(999)
      .map((share): Change => [`cut after ${share} ‰`, (bytes) => bytes.subarray(0, at(bytes, share))]),
  },
  {
    weight: 4,
    arbitrary: fc
      .tuple(fc.nat(1000), fc.constantFrom(...oddBytes))
      .map(([share, odd]): Change => [
        `with ${odd.toString("hex")} after ${share} ‰`,
        (bytes) => Buffer.concat([bytes.subarray(0, at(bytes, share)), odd, bytes.subarray(at(bytes, share))]),
      ]),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(...wholeBodies).map((text): Change => [`instead ${text}`, () => Buffer.from(text)]),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom<Change>(
      ["as UTF-16", (bytes) => Buffer.from(`\ufeff${bytes.toString()}`, "utf16le")],
      ["as UTF-32", (bytes) => Buffer.from([...bytes].flatMap((byte) => [byte, 0, 0, 0]))],
      ["as Latin-1", (bytes) => Buffer.from(bytes.toString().replaceAll("a", "é"), "latin1")],
      ["with a byte order mark", (bytes) => Buffer.concat([Buffer.from("\ufeff"), bytes])],
      ["twice", (bytes) => Buffer.concat([bytes, bytes])],
      ["with a line end between", (bytes) => Buffer.concat([bytes, Buffer.from("\n"), bytes])],
      ["behind a megabyte of spaces", (bytes) => Buffer.concat([Buffer.alloc(2 ** 20, " "), bytes])],
      ["before a megabyte of NUL", (bytes) => Buffer.concat([bytes, Buffer.alloc(2 ** 20)])],
      ["as a text of JSON", (bytes) => Buffer.from(JSON.stringify(bytes.toString()))],
    ),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom<Change>(
      ["in gzip", (bytes) => gzipSync(bytes)],
      ["in gzip, cut", (bytes) => gzipSync(bytes).subarray(0, -9)],
      ["in gzip, twice", (bytes) => gzipSync(gzipSync(bytes))],
      ["in gzip, with more behind", (bytes) => Buffer.concat([gzipSync(bytes), gzipSync(bytes), Buffer.from("a")])],
      ["as a gzip bomb", () => gzipBomb()],
      ["in deflate", (bytes) => deflateSync(bytes)],
      ["in brotli", (bytes) => brotliCompressSync(bytes)],
      ["in zstd", (bytes) => zstdCompressSync(bytes)],
    ),
  },
);

function at(bytes: Buffer, share: number): number {
  return Math.floor((bytes.byteLength * share) / 1000);
}

let bomb: Buffer | null = null;
/** 64 KiB that become 64 MiB of spaces, twice the longest body. */
function gzipBomb(): Buffer {
  bomb ??= gzipSync(Buffer.alloc(64 * 2 ** 20, " "));
  return bomb;
}

function isPlain(body: Buffer): boolean {
  return body.toString().trimStart().startsWith("{");
}

const contentTypes = [
  "application/json",
  "application/json; charset=utf-8",
  "application/json; charset=utf-16",
  "APPLICATION/JSON;",
  "application/vnd.api+json",
  "+json",
  "application/json, text/plain",
  "text/plain",
  "text/html; charset=utf-7",
  "application/x-www-form-urlencoded",
  "multipart/form-data",
  "multipart/form-data; boundary=a",
  "application/octet-stream",
  "*/*",
  ";",
  "",
  "a".repeat(4000),
] as const;

const contentEncodings = [
  "gzip",
  "x-gzip",
  "GZIP",
  "deflate",
  "br",
  "zstd",
  "identity",
  "gzip, gzip",
  "gzip, br",
  "aws-chunked",
  "",
  "a",
] as const;

const headers = fc.record(
  {
    "content-type": fc.oneof(
      { weight: 4, arbitrary: fc.constant("application/json") },
      { weight: 1, arbitrary: fc.constantFrom(...contentTypes) },
    ),
    "content-encoding": fc.constantFrom(...contentEncodings),
  },
  { requiredKeys: ["content-type"] },
);

/** The text of a body: no JSON, no UTF-8, cut, compressed, or called something else. */
export const texts: AttackClass = {
  name: "texts",
  title: "Bodies that are no JSON, no UTF-8, compressed or called something else",
  numCases: 500,
  routes: bodyRoutes.map(({ target }) => `POST ${target}`),
  prepare: prepareForBodies,
  attacks: () => fc.oneof(...bodyRoutes.map(({ target, bodies }) => textAttacks(target, bodies.map(writeJson)))),
};

function textAttacks(target: string, bodies: fc.Arbitrary<string>): fc.Arbitrary<Attack> {
  return fc.tuple(bodies, fc.array(change, { maxLength: 2 }), headers).map(([text, changes, sent]) => {
    const label = `${changes.map(([name]) => name).join(", ") || "as it is"} as ${Object.values(sent).join(" in ").slice(0, 80)}`;
    return {
      route: `POST ${target}`,
      label,
      shown: shorten(`${JSON.stringify(sent)}\n${label}\n${text}`, 1500),
      run: async (wire) => {
        const body = changes.reduce<Buffer>((bytes, [, apply]) => apply(bytes), Buffer.from(text));
        const answer = await wire.send({ method: "POST", target, headers: sent, body });
        const encoding = sent["content-encoding"] ?? "";
        if (answer.status < 400 && encoding !== "" && encoding !== "identity" && isPlain(body)) {
          throw new Error(`A plain body is served though Content-Encoding calls it ${encoding}.`);
        }
        return [answer];
      },
    };
  });
}
