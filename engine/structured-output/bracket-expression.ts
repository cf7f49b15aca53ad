/** Reads the bracket expressions and escapes that patterns and grammars share. */
import { complement, LAST_CODE_POINT, unite } from "./code-point-set.ts";
import type { CodePointRange, CodePointSet } from "./code-point-set.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { charactersOf } from "./unicode-properties.ts";

const digits: CodePointSet = [[0x30, 0x39]];
/** `\w`. */
export const wordCharacters = unite(digits, [[0x41, 0x5a]], [[0x5f, 0x5f]], [[0x61, 0x7a]]);
/** ASCII only. */
const whiteSpace: CodePointSet = [
  [0x09, 0x0d],
  [0x20, 0x20],
];

/** `.` in a pattern. */
export const anyButLineEnds = complement([
  [0x0a, 0x0a],
  [0x0d, 0x0d],
]);

const setsByLetter: Readonly<Record<string, CodePointSet>> = {
  d: digits,
  D: complement(digits),
  w: wordCharacters,
  W: complement(wordCharacters),
  s: whiteSpace,
  S: complement(whiteSpace),
};
const codesByLetter: Readonly<Record<string, number>> = {
  n: 0x0a,
  r: 0x0d,
  t: 0x09,
  v: 0x0b,
  f: 0x0c,
  a: 0x07,
  e: 0x1b,
  0: 0,
};
const hyphen: CodePointRange = [0x2d, 0x2d];
const hexEscapePattern = /x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,6})\}/y;
/** `\p{L}` and its complement. */
const propertyPattern = /([pP])\{([A-Za-z_=]{1,40})\}/y;

export interface ReadSet {
  readonly set: CodePointSet;
  /** Index after the expression. */
  readonly end: number;
}

/**
 * Reads the escape whose backslash is at `start`. Null for an escape that is not a character (`\b`, a backreference).
 */
export function readEscape(text: string, start: number): ReadSet | null {
  hexEscapePattern.lastIndex = start + 1;
  const hex = hexEscapePattern.exec(text);
  if (hex !== null) {
    const code = Number.parseInt(
      hex.slice(1).find((group) => group !== undefined)!,
      16,
    );
    if (code > LAST_CODE_POINT) refuseStructuredOutput(`The escape \\${hex[0]} is not a character`);
    return { set: [[code, code]], end: start + 1 + hex[0].length };
  }
  propertyPattern.lastIndex = start + 1;
  const property = propertyPattern.exec(text);
  if (property !== null) {
    const characters = charactersOf(property[2]!);
    if (characters === null) return null;
    return { set: property[1] === "P" ? complement(characters) : characters, end: start + 1 + property[0].length };
  }
  const codePoint = text.codePointAt(start + 1);
  if (codePoint === undefined) return null;
  const letter = String.fromCodePoint(codePoint);
  const end = start + 1 + letter.length;
  const set = setsByLetter[letter];
  if (set !== undefined) return { set, end };
  const code = codesByLetter[letter] ?? (/[a-z0-9]/i.test(letter) ? undefined : codePoint);
  return code === undefined ? null : { set: [[code, code]], end };
}

/** Reads the expression whose `[` is at `start`. Null if it is not closed or not supported. */
export function readBracketExpression(text: string, start: number): ReadSet | null {
  const isNegated = text[start + 1] === "^";
  let index = start + (isNegated ? 2 : 1);
  const ranges: CodePointRange[] = [];
  while (index < text.length && text[index] !== "]") {
    const first = readMember(text, index);
    if (first === null) return null;
    index = first.end;
    const last = text[index] === "-" && text[index + 1] !== "]" ? readMember(text, index + 1) : null;
    if (last === null) {
      ranges.push(...first.set);
      continue;
    }
    index = last.end;
    const [from, to] = [singleOf(first.set), singleOf(last.set)];
    // Next to a set, as in `[\w-.]`, a hyphen is literal.
    if (from === null || to === null) ranges.push(...first.set, hyphen, ...last.set);
    else if (from <= to) ranges.push([from, to]);
    else return null;
  }
  if (text[index] !== "]" || ranges.length === 0) return null;
  const set = ranges.length === 1 ? ranges : unite(ranges);
  return { set: isNegated ? complement(set) : set, end: index + 1 };
}

function readMember(text: string, index: number): ReadSet | null {
  if (text[index] === "\\") return readEscape(text, index);
  const codePoint = text.codePointAt(index);
  if (codePoint === undefined) return null;
  return { set: [[codePoint, codePoint]], end: index + (codePoint > 0xff_ff ? 2 : 1) };
}

function singleOf(set: CodePointSet): number | null {
  return set.length === 1 && set[0]![0] === set[0]![1] ? set[0]![0] : null;
}
