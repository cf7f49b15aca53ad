/** Functions of Python's `str` that differ from JavaScript's. */
import { pythonSpaces } from "./lexer.ts";
import { JinjaError } from "./values.ts";

const leadingSpace = new RegExp(`^[${pythonSpaces}]+`);
const space = new RegExp(`[${pythonSpaces}]+`);
const spaceCharacter = new RegExp(`[${pythonSpaces}]`);
const lineBreaks = new RegExp(String.raw`\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]`);

/** `characters`: null for white space. */
export function strip(text: string, characters: string | null, sides: "both" | "left" | "right"): string {
  const stripped = characters === null ? null : new Set(characters);
  const isStripped = (character: string): boolean =>
    stripped === null ? spaceCharacter.test(character) : stripped.has(character);
  const start = sides === "right" ? 0 : startOfRest(text, isStripped);
  return text.slice(start, sides === "left" ? text.length : endOfRest(text, start, isStripped));
}

function startOfRest(text: string, isStripped: (character: string) => boolean): number {
  let start = 0;
  for (const character of text) {
    if (!isStripped(character)) break;
    start += character.length;
  }
  return start;
}

function endOfRest(text: string, start: number, isStripped: (character: string) => boolean): number {
  let end = text.length;
  while (end > start) {
    const pair = text.slice(Math.max(start, end - 2), end);
    const character = pair.length === 2 && pair.codePointAt(0)! > 0xffff ? pair : text.slice(end - 1, end);
    if (!isStripped(character)) break;
    end -= character.length;
  }
  return end;
}

/** `separator`: null for runs of white space. `maxSplits`: -1 for any number. */
export function split(text: string, separator: string | null, maxSplits: number): string[] {
  if (separator === "") throw new JinjaError("empty separator");
  const parts: string[] = [];
  let rest = separator === null ? text.replace(leadingSpace, "") : text;
  const maxParts = maxSplits < 0 ? Number.POSITIVE_INFINITY : maxSplits;
  for (let numSplits = 0; numSplits < maxParts; numSplits++) {
    const found = separator === null ? space.exec(rest) : null;
    const start = separator === null ? (found?.index ?? -1) : rest.indexOf(separator);
    if (start === -1) break;
    parts.push(rest.slice(0, start));
    rest = rest.slice(start + (found?.[0].length ?? separator?.length ?? 0));
  }
  return separator === null && rest === "" ? parts : [...parts, rest];
}

export function splitFromRight(text: string, separator: string | null, maxSplits: number): string[] {
  if (separator === null) {
    const reversed = split(reverse(text), null, maxSplits);
    return reversed.reverse().map(reverse);
  }
  const parts = split(text, separator, -1);
  const numJoined = maxSplits < 0 ? 0 : parts.length - maxSplits;
  return numJoined <= 1 ? parts : [parts.slice(0, numJoined).join(separator), ...parts.slice(numJoined)];
}

export function splitLines(text: string): string[] {
  const lines = text.split(lineBreaks);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

export function reverse(text: string): string {
  return Array.from(text).reverse().join("");
}

export function replace(text: string, old: string, replacement: string, count: number): string {
  if (count < 0) {
    return old === "" ? ["", ...Array.from(text), ""].join(replacement) : text.replaceAll(old, () => replacement);
  }
  if (old === "") {
    const characters = ["", ...Array.from(text), ""];
    const joined = characters.slice(0, count + 1).join(replacement);
    return joined + characters.slice(count + 1).join("");
  }
  return split(text, old, count).join(replacement);
}

export function capitalize(text: string): string {
  const [first = "", ...rest] = text;
  return first.toUpperCase() + rest.join("").toLowerCase();
}

/** `str.title`: a letter after anything but a letter is upper case. */
export function title(text: string): string {
  return text.replace(/\p{Cased}+/gu, capitalize);
}

export function swapCase(text: string): string {
  return Array.from(text, (character) => {
    const lower = character.toLowerCase();
    return lower === character ? character.toUpperCase() : lower;
  }).join("");
}

export function isLower(text: string): boolean {
  return /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
}

export function isUpper(text: string): boolean {
  return /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);
}

/** `str.format` with positions and names; throws for format specifications and attributes. */
export function format(text: string, args: readonly string[], keywords: ReadonlyMap<string, string>): string {
  let numUsed = 0;
  return text.replace(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (whole: string, field?: string) => {
    if (whole === "{{" || whole === "}}") return whole[0]!;
    if (field === undefined) throw new JinjaError(`Single '${whole}' encountered in format string`);
    const value =
      field === "" || /^\d+$/.test(field) ? args[field === "" ? numUsed++ : Number(field)] : keywords.get(field);
    if (value === undefined) throw new JinjaError(`the format field {${field}} is not supported or has no value`);
    return value;
  });
}
