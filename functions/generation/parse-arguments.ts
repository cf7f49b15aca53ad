/** Parses the arguments of a call so that their numbers are printed as Python does: `10.0`, and integers of any length. */
import { randomUUID } from "node:crypto";

import { JsonFloat, JsonInteger } from "../../engine/index.ts";
import { bodyMark, markNumbers, parseBoundedJson } from "../http/bounded-json.ts";
import type { ParsedJson } from "../http/bounded-json.ts";

/** While the text is parsed, an object with this member stands for a number. No client can guess the name. */
const textMark = randomUUID();

/**
 * Like `parseBoundedJson`, with a `JsonFloat` for each number that is integral and written as a float, and a
 * `JsonInteger` for each integer beyond 2^53. A reviver with the sources of the numbers would do the same, but takes ten
 * times as long for long lists.
 */
export function parseArguments(text: string): ParsedJson {
  const parsed = parseBoundedJson(text);
  if (parsed.kind === "refused") return parsed;
  const marked = markNumbers(text, [0], textMark);
  return marked === null ? parsed : { kind: "parsed", value: unmark(JSON.parse(marked), textMark) };
}

/** An object of a body, with the same numbers in place of their marks. Changes its lists and objects in place. */
export function unmarkNumbers(input: Record<string, unknown>): Record<string, unknown> {
  unmarkMembers(input, bodyMark);
  return input;
}

/** Changes lists and objects in place. The parser bounds the depth of the recursion. */
function unmark(value: unknown, mark: string): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) value[index] = unmark(value[index], mark);
    return value;
  }
  const members = value as Record<string, unknown>;
  const number = Object.hasOwn(members, mark) ? toNumber(members[mark]) : null;
  if (number === null) unmarkMembers(members, mark);
  return number ?? value;
}

function unmarkMembers(members: Record<string, unknown>, mark: string): void {
  for (const name of Object.keys(members)) {
    // `__proto__` is a plain member of what JSON.parse returns, but cannot be assigned as one.
    Object.defineProperty(members, name, { value: unmark(members[name], mark) });
  }
}

/** Null for something that is no mark. */
function toNumber(marked: unknown): JsonFloat | JsonInteger | null {
  if (typeof marked === "number") return new JsonFloat(marked);
  return typeof marked === "string" && /^-?\d+$/.test(marked) ? new JsonInteger(BigInt(marked)) : null;
}
