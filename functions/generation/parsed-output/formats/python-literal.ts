/** Reads Python literals, and JSON's names of true, false and null, as JSON text. */
import { peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";

/** Lists and dictionaries around a value. The reader recurses over them. */
const MAX_DEPTH = 64;
const MAX_NUMBER_LENGTH = 400;

const words = { True: "true", true: "true", False: "false", false: "false", None: "null", null: "null" } as const;
const escapes: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  b: "\b",
  f: "\f",
  a: "\x07",
  v: "\v",
  "0": "\0",
  "\\": "\\",
  "'": "'",
  '"': '"',
  "\n": "",
};
const numHexDigits: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/** JSON text of the value; null if there is no literal, or a broken one. */
export function* readPythonLiteral(source: TextSource, depth = 0): Reading<string | null> {
  if (depth > MAX_DEPTH) return null;
  const next = yield* peek(source);
  if (next === '"' || next === "'") {
    const text = yield* readString(source, next);
    return text === null ? null : JSON.stringify(text);
  }
  if (next === "[") return yield* readItems(source, "]", (item) => readPythonLiteral(item, depth + 1), ["[", "]"]);
  if (next === "(") return yield* readItems(source, ")", (item) => readPythonLiteral(item, depth + 1), ["[", "]"]);
  if (next === "{") return yield* readItems(source, "}", (item) => readEntry(item, depth + 1), ["{", "}"]);
  const number = yield* readWhile(source, /[\d.eE+_-]/, MAX_NUMBER_LENGTH);
  if (number !== "") return toJsonNumber(number);
  const word = yield* tryRead(source, ...(Object.keys(words) as (keyof typeof words)[]));
  return word === null ? null : words[word];
}

function* readItems(
  source: TextSource,
  end: "]" | ")" | "}",
  readItem: (source: TextSource) => Reading<string | null>,
  [open, close]: readonly [string, string],
): Reading<string | null> {
  source.position += 1;
  const items: string[] = [];
  yield* skipSpace(source);
  while ((yield* tryRead(source, end)) === null) {
    const item = yield* readItem(source);
    if (item === null) return null;
    items.push(item);
    yield* skipSpace(source);
    if ((yield* tryRead(source, ",")) === null && (yield* peek(source)) !== end) return null;
    yield* skipSpace(source);
  }
  return `${open}${items.join(", ")}${close}`;
}

function* readEntry(source: TextSource, depth: number): Reading<string | null> {
  const quote = yield* peek(source);
  if (quote !== '"' && quote !== "'") return null;
  const key = yield* readString(source, quote);
  yield* skipSpace(source);
  if (key === null || (yield* tryRead(source, ":")) === null) return null;
  yield* skipSpace(source);
  const value = yield* readPythonLiteral(source, depth);
  return value === null ? null : `${JSON.stringify(key)}: ${value}`;
}

/** A quote within the text is escaped; null if the text ends first. */
function* readString(source: TextSource, quote: string): Reading<string | null> {
  source.position += 1;
  let text = "";
  while (true) {
    const next = yield* peek(source);
    if (next === "") return null;
    source.position += 1;
    if (next === quote) return text;
    text += next === "\\" ? yield* readEscape(source) : next;
  }
}

/** An unknown escape stays as it is, as in Python. */
function* readEscape(source: TextSource): Reading<string> {
  const next = yield* peek(source);
  if (next === "") return "\\";
  source.position += 1;
  const plain = escapes[next];
  if (plain !== undefined) return plain;
  const length = numHexDigits[next];
  if (length === undefined) return `\\${next}`;
  const digits = yield* readWhile(source, /[\da-fA-F]/, length);
  const code = Number.parseInt(digits, 16);
  // Halves of surrogate pairs join into one character.
  return digits.length === length && code <= 0x10ffff
    ? code > 0xffff
      ? String.fromCodePoint(code)
      : String.fromCharCode(code)
    : `\\${next}${digits}`;
}

function toJsonNumber(text: string): string | null {
  const plain = text.replaceAll(/(?<=\d)_(?=\d)/g, "");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(plain)) return null;
  if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(plain)) return plain;
  const value = Number(plain);
  return Number.isFinite(value) ? JSON.stringify(value) : null;
}
