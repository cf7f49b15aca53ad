/** Parses the arguments of a call so that chat templates print their numbers as Python does. */
import { randomUUID } from "node:crypto";

import { JsonFloat } from "../../engine/index.ts";
import { endOfString, parseBoundedJson } from "../http/bounded-json.ts";
import type { ParsedJson } from "../http/bounded-json.ts";

/** More are plain numbers: each takes as long to parse as dozens of characters. */
const MAX_FLOATS = 4096;
/** While the text is parsed, an object with this member stands for a float. No client can guess the name. */
const floatMember = randomUUID();

/**
 * Like `parseBoundedJson`, with a `JsonFloat` for each number that is integral and written as a float. A reviver with
 * the sources of the numbers would do the same, but takes ten times as long for long lists.
 */
export function parseArguments(text: string): ParsedJson {
  const parsed = parseBoundedJson(text);
  if (parsed.kind === "refused") return parsed;
  const marked = tryMarkFloats(text);
  return marked === null ? parsed : { kind: "parsed", value: unmarkFloats(JSON.parse(marked)) };
}

/** The valid JSON text with an object in the place of each integral float; null without any, or with too many. */
function tryMarkFloats(text: string): string | null {
  const pieces: string[] = [];
  let end = 0;
  for (let index = 0; index < text.length; index++) {
    const character = text[index]!;
    if (character === '"') {
      index = endOfString(text, index + 1);
    } else if (character === "." || (isExponent(character) && isDigit(text[index - 1]))) {
      let start = index;
      while (isOfNumber(text[start - 1])) start--;
      while (isOfNumber(text[index + 1])) index++;
      const number = text.slice(start, index + 1);
      if (!Number.isInteger(Number(number))) continue;
      if (pieces.length === MAX_FLOATS) return null;
      pieces.push(`${text.slice(end, start)}{"${floatMember}":${number}}`);
      end = index + 1;
    }
  }
  return pieces.length === 0 ? null : pieces.join("") + text.slice(end);
}

function isDigit(character: string | undefined): boolean {
  return character !== undefined && character >= "0" && character <= "9";
}

function isExponent(character: string): boolean {
  return character === "e" || character === "E";
}

function isOfNumber(character: string | undefined): boolean {
  if (character === undefined) return false;
  return isDigit(character) || isExponent(character) || ".+-".includes(character);
}

/** Changes lists and objects in place. The parser bounds the depth of the recursion. */
function unmarkFloats(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) value[index] = unmarkFloats(value[index]);
    return value;
  }
  const members = value as Record<string, unknown>;
  if (Object.hasOwn(members, floatMember)) return new JsonFloat(members[floatMember] as number);
  for (const name of Object.keys(members)) {
    // `__proto__` is a plain member of what JSON.parse returns, but cannot be assigned as one.
    Object.defineProperty(members, name, { value: unmarkFloats(members[name]) });
  }
  return value;
}
