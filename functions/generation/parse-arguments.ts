/** Parses the arguments of a call so that their numbers are printed as Python does: `10.0`, and integers of any length. */
import { randomUUID } from "node:crypto";

import { JsonFloat, JsonInteger } from "../../engine/index.ts";
import { endOfString, parseBoundedJson } from "../http/bounded-json.ts";
import type { ParsedJson } from "../http/bounded-json.ts";

/** More are plain numbers: each takes as long to parse as dozens of characters. */
const MAX_MARKS = 4096;
/** While the text is parsed, an object with this member stands for a number. No client can guess the name. */
const markMember = randomUUID();

/**
 * Like `parseBoundedJson`, with a `JsonFloat` for each number that is integral and written as a float, and a
 * `JsonInteger` for each integer beyond 2^53. A reviver with the sources of the numbers would do the same, but takes ten
 * times as long for long lists.
 */
export function parseArguments(text: string): ParsedJson {
  const parsed = parseBoundedJson(text);
  if (parsed.kind === "refused") return parsed;
  const marked = tryMarkNumbers(text);
  return marked === null ? parsed : { kind: "parsed", value: unmarkNumbers(JSON.parse(marked)) };
}

/**
 * The valid JSON text with an object in the place of each integral float and each integer that JavaScript rounds; null
 * without any, or with too many.
 */
function tryMarkNumbers(text: string): string | null {
  const pieces: string[] = [];
  let end = 0;
  for (let index = 0; index < text.length; index++) {
    const character = text[index]!;
    if (character === '"') {
      index = endOfString(text, index + 1);
    } else if (isOfNumber(character)) {
      const start = index;
      while (isOfNumber(text[index + 1])) index++;
      const number = text.slice(start, index + 1);
      const mark = markOf(number);
      if (mark === null) continue;
      if (pieces.length === MAX_MARKS) return null;
      pieces.push(`${text.slice(end, start)}{"${markMember}":${mark}}`);
      end = index + 1;
    }
  }
  return pieces.length === 0 ? null : pieces.join("") + text.slice(end);
}

/** A float stays a number within its mark, an integer becomes a text; null for a number that needs none. */
function markOf(number: string): string | null {
  const value = Number(number);
  if (!Number.isInteger(value)) return null;
  if (/[.eE]/.test(number)) return number;
  return Number.isSafeInteger(value) ? null : `"${number}"`;
}

/** Also of a word: `e`. It is no number, so it needs no mark. */
function isOfNumber(character: string | undefined): boolean {
  if (character === undefined) return false;
  return (character >= "0" && character <= "9") || "eE.+-".includes(character);
}

/** Changes lists and objects in place. The parser bounds the depth of the recursion. */
function unmarkNumbers(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) value[index] = unmarkNumbers(value[index]);
    return value;
  }
  const members = value as Record<string, unknown>;
  const number = Object.hasOwn(members, markMember) ? (members[markMember] as number | string) : null;
  if (number !== null) return typeof number === "string" ? new JsonInteger(BigInt(number)) : new JsonFloat(number);
  for (const name of Object.keys(members)) {
    // `__proto__` is a plain member of what JSON.parse returns, but cannot be assigned as one.
    Object.defineProperty(members, name, { value: unmarkNumbers(members[name]) });
  }
  return value;
}
