/**
 * Divides a Jinja template into texts and the tokens of its tags, as Jinja 3.1 does with `trim_blocks` and
 * `lstrip_blocks`.
 */
import { Float, JinjaError } from "./values.ts";

export type Token =
  | { readonly type: "text" | "name" | "string" | "operator"; readonly value: string }
  | { readonly type: "number"; readonly value: number | Float }
  | { readonly type: "begin block" | "end block" | "begin output" | "end output" | "end" };

/** Python's white space, in `strip` and regular expressions. */
export const pythonSpaces = String.raw`\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;
const trailingSpace = new RegExp(`[${pythonSpaces}]+$`);
const leadingSpace = new RegExp(`[${pythonSpaces}]*`, "y");
const onlySpace = new RegExp(`^[${pythonSpaces}]+$`);

const tagBegin = /\{%[-+]?|\{\{[-+]?|\{#[-+]?/g;
const rawBegin = new RegExp(`\\{%[-+]?[${pythonSpaces}]*raw[${pythonSpaces}]*(?:-%\\}[${pythonSpaces}]*|%\\})`, "y");
const rawEnd = new RegExp(
  `\\{%(?<sign>[-+]?)[${pythonSpaces}]*endraw[${pythonSpaces}]*(?:\\+%\\}|-%\\}[${pythonSpaces}]*|%\\}\\n?)`,
  "g",
);
const commentEnd = new RegExp(`\\+#\\}|-#\\}[${pythonSpaces}]*|#\\}\\n?`, "g");
const blockEnd = new RegExp(`\\+%\\}|-%\\}[${pythonSpaces}]*|%\\}\\n?`, "y");
const outputEnd = new RegExp(`-\\}\\}[${pythonSpaces}]*|\\}\\}`, "y");
const floatPattern = /(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const integerPattern = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const namePattern = /[\p{L}\p{N}_]+/uy;
const stringPattern = /'[^'\\]*(?:\\[^][^'\\]*)*'|"[^"\\]*(?:\\[^][^"\\]*)*"/y;
const operatorPattern = /\/\/|\*\*|==|!=|>=|<=|[+\-/*%~[\](){}<>=.:|,;]/y;
const openingOf: Readonly<Record<string, string>> = { ")": "(", "]": "[", "}": "{" };

/** @throws JinjaError for a template that Jinja rejects. */
export function tokenize(source: string): Token[] {
  const text = source.replace(/\r\n?/g, "\n").replace(/\n$/, "");
  const tokens: Token[] = [];
  let position = 0;
  let startsLine = true;
  while (position < text.length) {
    tagBegin.lastIndex = position;
    const begin = tagBegin.exec(text);
    if (begin === null) {
      addText(tokens, text.slice(position));
      break;
    }
    const tag = begin[0];
    const kind = tag.slice(0, 2);
    addText(tokens, textBefore(text.slice(position, begin.index), tag, startsLine));
    const raw = kind === "{%" ? matchAt(rawBegin, text, begin.index) : null;
    if (raw !== null) {
      rawEnd.lastIndex = begin.index + raw.length;
      const end = rawEnd.exec(text);
      if (end === null) throw new JinjaError("missing end of raw directive");
      const sign = end.groups?.sign ?? "";
      addText(tokens, textBefore(text.slice(begin.index + raw.length, end.index), `{%${sign}`, raw.endsWith("\n")));
      position = end.index + end[0].length;
    } else if (kind === "{#") {
      commentEnd.lastIndex = begin.index + tag.length;
      const end = commentEnd.exec(text);
      if (end === null) throw new JinjaError("missing end of comment tag");
      position = end.index + end[0].length;
    } else {
      position = tokenizeTag(tokens, text, begin.index + tag.length, kind === "{%");
    }
    startsLine = text[position - 1] === "\n";
  }
  tokens.push({ type: "end" });
  return tokens;
}

function addText(tokens: Token[], value: string): void {
  if (value !== "") tokens.push({ type: "text", value });
}

/** The text without the white space that the tag removes: all with `-`, and the indentation of a block. */
function textBefore(text: string, tag: string, startsLine: boolean): string {
  if (tag.endsWith("-")) return text.replace(trailingSpace, "");
  if (tag.endsWith("+") || tag.startsWith("{{")) return text;
  const lineStart = text.lastIndexOf("\n") + 1;
  const isIndentation = (lineStart > 0 || startsLine) && onlySpace.test(text.slice(lineStart));
  return isIndentation ? text.slice(0, lineStart) : text;
}

function matchAt(pattern: RegExp, text: string, position: number): string | null {
  pattern.lastIndex = position;
  return pattern.exec(text)?.[0] ?? null;
}

/** Returns the position after the tag. */
function tokenizeTag(tokens: Token[], text: string, start: number, isBlock: boolean): number {
  tokens.push({ type: isBlock ? "begin block" : "begin output" });
  const open: string[] = [];
  let position = start;
  for (;;) {
    position += matchAt(leadingSpace, text, position)?.length ?? 0;
    const end = open.length === 0 ? matchAt(isBlock ? blockEnd : outputEnd, text, position) : null;
    if (end !== null) {
      tokens.push({ type: isBlock ? "end block" : "end output" });
      return position + end.length;
    }
    const [token, length] = tokenAt(text, position);
    if (token.type === "operator") balance(open, token.value);
    tokens.push(token);
    position += length;
  }
}

function tokenAt(text: string, position: number): [Token, number] {
  const isAfterDot = text[position - 1] === ".";
  const float = isAfterDot ? null : matchAt(floatPattern, text, position);
  if (float !== null) return [{ type: "number", value: new Float(Number(float.replaceAll("_", ""))) }, float.length];
  const integer = matchAt(integerPattern, text, position);
  if (integer !== null) return [{ type: "number", value: Number(integer.replaceAll("_", "")) }, integer.length];
  const name = matchAt(namePattern, text, position);
  if (name !== null) return [{ type: "name", value: name }, name.length];
  const string = matchAt(stringPattern, text, position);
  if (string !== null) return [{ type: "string", value: unescape(string.slice(1, -1)) }, string.length];
  const operator = matchAt(operatorPattern, text, position);
  if (operator !== null) return [{ type: "operator", value: operator }, operator.length];
  if (position >= text.length) throw new JinjaError("unexpected end of template");
  throw new JinjaError(`unexpected char ${JSON.stringify(text[position])}`);
}

function balance(open: string[], operator: string): void {
  if (operator === "(" || operator === "[" || operator === "{") open.push(operator);
  const opening = openingOf[operator];
  if (opening !== undefined && open.pop() !== opening) throw new JinjaError(`unexpected '${operator}'`);
}

const escapes: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\u0007",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
const escapePattern = /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{1,3})|([^]))/gi;

/** Escapes of Python's strings. An unknown one stays as it is. */
function unescape(text: string): string {
  return text.replace(
    escapePattern,
    (whole: string, x?: string, u?: string, long?: string, octal?: string, other = "") => {
      const digits = x ?? u ?? long;
      if (digits !== undefined) return String.fromCodePoint(Number.parseInt(digits, 16));
      return octal === undefined ? (escapes[other] ?? whole) : String.fromCodePoint(Number.parseInt(octal, 8));
    },
  );
}
